import assert from "node:assert/strict";
import { create, type DescEnum, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import type { JsonTree } from "./json-tree.ts";

/**
 * Reads what the service writes, as a receiver with the proto files would, and knows nothing of how it is written.
 *
 * @throws AssertionError on a name, an order or a shape that is not as it should be
 */
export function readMessage(desc: DescMessage, tree: JsonTree): ReflectMessage {
  if (desc.typeName === "google.protobuf.Timestamp") return readTime(desc, tree);
  assert.ok("object" in tree, `${desc.typeName} is an object`);
  assert.deepEqual(
    tree.object.map(([key]) => key),
    desc.fields.map((field) => pascal(field.name)),
    `the keys of ${desc.typeName}`,
  );
  const message = reflect(desc);
  for (const [index, field] of desc.fields.entries())
    readField(message, field, tree.object[index]?.[1] as JsonTree);
  return message;
}

const pascal = (name: string) =>
  name.replaceAll(/(?:^|_)(.)/g, (_match, letter: string) => letter.toUpperCase());

function readField(message: ReflectMessage, field: DescField, tree: JsonTree): void {
  if (field.fieldKind === "list") {
    assert.ok("array" in tree, `${field} is an array`);
    for (const item of tree.array) message.get(field).add(readValue(field, item));
  } else if (field.fieldKind === "map") {
    assert.ok("object" in tree, `${field} is an object`);
    for (const [key, value] of tree.object)
      message.get(field).set(readKey(field.mapKey, key), readValue(field, value));
  } else if (!("literal" in tree && tree.literal === null)) {
    message.set(field, readValue(field, tree));
  }
}

// biome-ignore lint/suspicious/noExplicitAny: reflection has a type for each kind of field
type Value = any;

function readValue(field: DescField, tree: JsonTree): Value {
  if (field.message) return readMessage(field.message, tree);
  if (field.enum) return readMember(field.enum, tree);
  return readScalar(field.scalar, tree);
}

function readKey(type: ScalarType, key: string): Value {
  if (type === ScalarType.STRING) return key;
  return readScalar(type, type === ScalarType.BOOL ? { literal: JSON.parse(key) } : { number: key });
}

function readMember(desc: DescEnum, tree: JsonTree): number {
  assert.ok("string" in tree, `a ${desc.typeName} is a name`);
  const prefix = `${desc.name.replaceAll(/(?<=.)[A-Z]/g, "_$&").toUpperCase()}_`;
  const prefixed = desc.values.every((value) => value.name.startsWith(prefix));
  const found = desc.values.find((value) => {
    const name = prefixed ? value.name.slice(prefix.length) : value.name;
    return pascal(name.toLowerCase()) === tree.string;
  });
  assert.ok(found, `${tree.string} is a ${desc.typeName}`);
  return found.number;
}

function readScalar(type: ScalarType, tree: JsonTree): Value {
  switch (type) {
    case ScalarType.STRING:
      assert.ok("string" in tree);
      return tree.string;
    case ScalarType.BYTES: {
      assert.ok("string" in tree);
      const bytes = Buffer.from(tree.string, "base64");
      assert.equal(bytes.toString("base64"), tree.string);
      return new Uint8Array(bytes);
    }
    case ScalarType.BOOL:
      assert.ok("literal" in tree && tree.literal !== null);
      return tree.literal;
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      assert.ok("number" in tree);
      return Number(tree.number);
    default:
      assert.ok("number" in tree);
      assert.match(tree.number, /^-?\d+$/);
      return ScalarType[type].endsWith("64") ? BigInt(tree.number) : Number(tree.number);
  }
}

function readTime(desc: DescMessage, tree: JsonTree): ReflectMessage {
  assert.ok("string" in tree);
  assert.match(tree.string, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/);
  const seconds = BigInt(Date.parse(`${tree.string}Z`)) / 1_000n;
  return reflect(desc, create(TimestampSchema, { seconds }));
}
