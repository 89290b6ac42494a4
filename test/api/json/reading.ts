import assert from "node:assert/strict";
import { create, type DescEnum, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";

/** A number digit by digit. */
class Digits {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  toJSON(): unknown {
    return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(this.text);
  }
}

type Reviver = (key: string, value: unknown, context: { source: string }) => unknown;
const exactly: Reviver = (_key, value, { source }) =>
  typeof value === "number" ? new Digits(source) : value;

// biome-ignore lint/suspicious/noExplicitAny: reflection has a type for each kind of field
type Value = any;

/**
 * Reads what the service writes, as a receiver with the proto files would, and knows nothing of how it is written.
 *
 * @throws AssertionError on a name, an order or a shape that is not as it should be
 */
export function readMessage(desc: DescMessage, json: string): ReflectMessage {
  const tree: Value = JSON.parse(json, exactly as (key: string, value: unknown) => unknown);
  assert.equal(JSON.stringify(tree).length, json.length, "without white space, and each key once");
  return readObject(desc, tree);
}

function readObject(desc: DescMessage, tree: Value): ReflectMessage {
  if (desc.typeName === "google.protobuf.Timestamp") return readTime(desc, tree);
  assert.deepEqual(
    Object.keys(tree),
    desc.fields.map((field) => pascal(field.name)),
    `the keys of ${desc.typeName}`,
  );
  const message = reflect(desc);
  for (const field of desc.fields) readField(message, field, tree[pascal(field.name)]);
  return message;
}

const pascal = (name: string) =>
  name.replaceAll(/(?:^|_)(.)/g, (_match, letter: string) => letter.toUpperCase());

function readField(message: ReflectMessage, field: DescField, tree: Value): void {
  if (field.fieldKind === "list") {
    assert.ok(Array.isArray(tree), `${field} is an array`);
    for (const item of tree) message.get(field).add(readValue(field, item));
  } else if (field.fieldKind === "map") {
    for (const [key, value] of Object.entries(tree))
      message.get(field).set(readKey(field.mapKey, key), readValue(field, value));
  } else if (tree !== null) message.set(field, readValue(field, tree));
}

function readValue(field: DescField, tree: Value): Value {
  if (field.message) return readObject(field.message, tree);
  return field.enum ? readMember(field.enum, tree) : readScalar(field.scalar, tree);
}

function readKey(type: ScalarType, key: string): Value {
  if (type === ScalarType.STRING) return key;
  return readScalar(type, type === ScalarType.BOOL ? JSON.parse(key) : new Digits(key));
}

function readMember(desc: DescEnum, name: string): number {
  const prefix = `${desc.name.replaceAll(/(?<=.)[A-Z]/g, "_$&").toUpperCase()}_`;
  const prefixed = desc.values.every((value) => value.name.startsWith(prefix));
  const found = desc.values.find((value) => {
    const own = prefixed ? value.name.slice(prefix.length) : value.name;
    return pascal(own.toLowerCase()) === name;
  });
  assert.ok(found, `${name} is a ${desc.typeName}`);
  return found.number;
}

function readScalar(type: ScalarType, tree: Value): Value {
  switch (type) {
    case ScalarType.STRING:
    case ScalarType.BOOL:
      assert.equal(typeof tree, type === ScalarType.BOOL ? "boolean" : "string");
      return tree;
    case ScalarType.BYTES:
      assert.equal(Buffer.from(tree, "base64").toString("base64"), tree);
      return new Uint8Array(Buffer.from(tree, "base64"));
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return Number(tree.text);
    default:
      assert.match(tree.text, /^-?\d+$/);
      return ScalarType[type].endsWith("64") ? BigInt(tree.text) : Number(tree.text);
  }
}

function readTime(desc: DescMessage, tree: string): ReflectMessage {
  assert.match(tree, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/);
  return reflect(desc, create(TimestampSchema, { seconds: BigInt(Date.parse(`${tree}Z`)) / 1_000n }));
}
