import {
  type CelInput,
  CelScalar,
  type CelType,
  type CelValue,
  celUint,
  isCelError,
  isCelList,
  isCelMap,
  isCelType,
  isCelUint,
  listType,
  mapType,
  objectType,
} from "@bufbuild/cel";
import { getTestRegistry } from "@bufbuild/cel-spec/testdata/registry.js";
import { getConformanceSuite, type IncrementalTestSuite } from "@bufbuild/cel-spec/testdata/tests.js";
import { toJsonString } from "@bufbuild/protobuf";
import { isReflectMessage } from "@bufbuild/protobuf/reflect";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { compileExpression } from "../../../src/lib/cel/expression.ts";
import { read } from "../../repository/project.ts";

type Case = IncrementalTestSuite["tests"][number]["original"];
type Value = Extract<Case["resultMatcher"], { case: "value" }>["value"];
type Type = NonNullable<Extract<Case["typeEnv"][number]["declKind"], { case: "ident" }>["value"]["type"]>;

const registry = getTestRegistry();

function casesOf({ name, suites, tests }: IncrementalTestSuite, path = ""): [path: string, test: Case][] {
  const here = `${path}${name}/`;
  return [
    ...tests.map(({ original, name: title }): [string, Case] => [`${here}${title}`, original]),
    ...suites.flatMap((suite) => casesOf(suite, here)),
  ];
}

function inputOf({ kind }: Value): CelInput {
  switch (kind.case) {
    case "nullValue":
      return null;
    case "uint64Value":
      return celUint(kind.value);
    case "listValue":
      return kind.value.values.map(inputOf);
    case "mapValue":
      return new Map(
        kind.value.entries.map(({ key, value }) => [
          inputOf(key as Value) as string,
          inputOf(value as Value),
        ]),
      );
    case "objectValue": {
      const message = anyUnpack(kind.value, registry);
      if (!message) throw new Error(`unknown message ${kind.value.typeUrl}`);
      return message;
    }
    case "enumValue":
      return BigInt(kind.value.value);
    case "typeValue":
      return kind.value;
    default:
      return kind.value ?? null;
  }
}

function typeOf({ typeKind }: Type): CelType {
  switch (typeKind.case) {
    case "primitive": {
      const { BOOL, INT, UINT, DOUBLE, STRING, BYTES, DYN } = CelScalar;
      return [DYN, BOOL, INT, UINT, DOUBLE, STRING, BYTES][typeKind.value] ?? DYN;
    }
    case "listType":
      return listType(typeKind.value.elemType ? typeOf(typeKind.value.elemType) : CelScalar.DYN);
    case "mapType": {
      const { keyType, valueType } = typeKind.value;
      if (!keyType || !valueType) return CelScalar.DYN;
      return mapType(typeOf(keyType) as typeof CelScalar.STRING, typeOf(valueType));
    }
    case "messageType": {
      const desc = registry.getMessage(typeKind.value);
      return desc ? objectType(desc) : CelScalar.DYN;
    }
    default:
      return CelScalar.DYN;
  }
}

/** A text that equal values of one type share. */
function textOf(value: CelValue | Value): string {
  if (isCelUint(value)) return `uint ${value.value}`;
  if (value instanceof Uint8Array) return `bytes ${value.join()}`;
  if (isCelType(value)) return `type ${value.name}`;
  if (isCelList(value)) return `[${[...value].map(textOf).join()}]`;
  if (isCelMap(value))
    return `{${[...value]
      .map(([key, of]) => `${textOf(key)}: ${textOf(of)}`)
      .sort()
      .join()}}`;
  if (isReflectMessage(value))
    return `${value.desc.typeName} ${toJsonString(value.desc, value.message, { registry })}`;
  return Object.is(value, -0) ? "number 0" : `${typeof value} ${value}`;
}

/** What a test expects, as a value of CEL. */
function expectedText(value: Value): string {
  if (value.kind.case === "typeValue") return `type ${value.kind.value}`;
  const expression = compileExpression(
    { namespace: "", registry, variables: { value: CelScalar.DYN } },
    "value",
  );
  return textOf(expression.evaluate({ value: inputOf(value) }) as CelValue);
}

/** Why a test fails; undefined if it passes. */
function failureOf({ expr, container, typeEnv, bindings, resultMatcher }: Case): string | undefined {
  const variables = Object.fromEntries(
    typeEnv.flatMap(({ name, declKind }) =>
      declKind.case === "ident" && declKind.value.type ? [[name, typeOf(declKind.value.type)]] : [],
    ),
  );
  let result: ReturnType<ReturnType<typeof compileExpression>["evaluate"]>;
  try {
    const values = Object.entries(bindings).map(([name, { kind }]) => [
      name,
      kind.case === "value" ? inputOf(kind.value) : null,
    ]);
    result = compileExpression({ namespace: container, registry, variables }, expr).evaluate(
      Object.fromEntries(values),
    );
  } catch (error) {
    return resultMatcher.case === "evalError" ? undefined : `is refused: ${(error as Error).message}`;
  }
  if (isCelError(result)) return resultMatcher.case === "evalError" ? undefined : `fails: ${result.message}`;
  const expected =
    resultMatcher.case === "value"
      ? expectedText(resultMatcher.value)
      : resultMatcher.case === "typedResult"
        ? resultMatcher.value.result && expectedText(resultMatcher.value.result)
        : resultMatcher.case === "evalError"
          ? "an error"
          : "boolean true";
  const text = textOf(result);
  return expected === undefined || text === expected ? undefined : `is ${text} instead of ${expected}`;
}

/** What filters do not have, in expressions of tests. */
const NOT_IN_FILTERS = {
  "messages that are made": /\b[A-Z]\w*(\/\/.*|\s)*\{/,
  "the type names of messages and optionals": /google\.protobuf\.\w+ ==|optional_type/,
  "enums of their own types":
    /(?<![.\w])(GlobalEnum|TestAllTypes\.NestedEnum)\(|type\((GlobalEnum|TestAllTypes\.NestedEnum)\./,
  "names in backticks": /`/,
  "fields of extensions": /proto\.(has|get)Ext/,
  "cel.block, for optimizers": /cel\.(block|iterVar)/,
  base64: /base64\./,
};

/** Where the library differs. */
const DIFFERENT = ["conformance/fields/qualified_identifier_resolution/map_value_repeat_key_heterogeneous"];

const applies = ({ expr, typeEnv, disableCheck, checkOnly }: Case) =>
  // Filters are always checked and evaluated, and their variables have names without dots.
  !disableCheck &&
  !checkOnly &&
  !typeEnv.some(({ name }) => name.includes(".")) &&
  !Object.values(NOT_IN_FILTERS).some((pattern) => pattern.test(expr));

test("filters pass the tests of CEL's specification that apply to them, as many as docs/filters.md says", () => {
  const cases = casesOf(getConformanceSuite());
  const applied = cases.filter(([, each]) => applies(each));
  const failed = applied.flatMap(([path, each]) => {
    const failure = failureOf(each);
    return failure === undefined ? [] : [{ path, failure: `${each.expr} ${failure}` }];
  });
  expect(failed.filter(({ path }) => !DIFFERENT.includes(path))).toEqual([]);
  expect(failed.map(({ path }) => path)).toEqual(DIFFERENT);
  const count = (n: number) => n.toLocaleString("en-US");
  const [passed, of, all] = [applied.length - failed.length, applied.length, cases.length].map(count);
  expect(read("docs/filters.md")).toContain(
    `${passed} of the ${of} tests that apply to filters, of ${all} in all`,
  );
});
