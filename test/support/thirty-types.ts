import fc from "fast-check";

/**
 * A value in two texts, which are made independently of the service: as a publisher writes it, in Protobuf's JSON, and as the contract
 * has receivers get it. `json` is undefined if the publisher leaves the field out.
 */
interface Value {
  json: string | undefined;
  sent: string;
}

/** Fields of one kind. */
interface Kind {
  /** As in a proto file. */
  type: string;
  label?: "repeated" | "optional" | "oneof";
  /** Further options of the field. */
  options?: string;
  values: fc.Arbitrary<Value>;
  /** What receivers get if the publisher leaves it out; undefined if the service refuses that. */
  unset: string | undefined;
  /** Of a oneof: its members. */
  members?: Fields;
}

type Fields = Record<string, Kind>;

/** An event type of the catalogue. */
export interface ThirtyType {
  name: string;
  /** Its full name. */
  message: string;
  alias: string | undefined;
  /** Undefined if the service assigns its number. */
  process: number | undefined;
  /** Its description. */
  comment: string;
  /** The name of its searchable field, which is its first one. */
  key: string;
  values: fc.Arbitrary<Payload>;
}

/** A payload in Protobuf's JSON, and as receivers get it. */
export interface Payload {
  json: string;
  sent: string;
  /** The value of the first field, as receivers get it. */
  first: string;
}

const both = (text: string): Value => ({ json: text, sent: text });
const quoted = (text: string): Value => ({ json: `"${text}"`, sent: text });

/** What can be left out, and is then sent as `unset`. */
const left = ({ values, unset }: Kind): fc.Arbitrary<Value> =>
  unset === undefined
    ? values
    : fc.oneof(
        { weight: 5, arbitrary: values },
        { weight: 1, arbitrary: fc.constant({ json: undefined, sent: unset }) },
      );

const integer = (type: string, min: number, max: number): Kind => ({
  type,
  values: fc.oneof(fc.constantFrom(min, max), fc.integer({ min, max })).map((n) => both(String(n))),
  unset: "0",
});
/** 64-bit integers, most of them beyond what a JavaScript number can say. */
const long = (type: string, min: bigint, max: bigint): Kind => ({
  type,
  values: fc
    .oneof(fc.constantFrom(min, max, 2n ** 53n + 1n), fc.bigInt({ min, max }))
    .map((n) => quoted(String(n))),
  unset: "0",
});

const INT32 = integer("int32", -(2 ** 31), 2 ** 31 - 1);
const UINT32 = integer("uint32", 0, 2 ** 32 - 1);
const INT64 = long("int64", -(2n ** 63n), 2n ** 63n - 1n);
const UINT64 = long("uint64", 0n, 2n ** 64n - 1n);
const of = (kind: Kind, type: string): Kind => ({ ...kind, type });

const STRING: Kind = {
  type: "string",
  values: fc
    .oneof(
      fc.string({ unit: "grapheme" }),
      fc.constantFrom('"\\/', "\u2028\u2029", "</script>", "Ünïcode 🧾", "\n\t"),
    )
    .map((text) => both(JSON.stringify(text))),
  unset: '""',
};
const BYTES: Kind = {
  type: "bytes",
  values: fc.uint8Array({ maxLength: 40 }).map((bytes) => both(`"${Buffer.from(bytes).toString("base64")}"`)),
  unset: '""',
};
const BOOL: Kind = { type: "bool", values: fc.boolean().map((is) => both(String(is))), unset: "false" };
const DOUBLE: Kind = {
  type: "double",
  values: fc
    .oneof(
      fc.constantFrom(5e-324, 1.7976931348623157e308, 1e21, 0.1),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
    )
    .map((n) => both(Object.is(n, -0) ? "-0" : String(n))),
  unset: "0",
};
/** Numbers that a float can say. */
const FLOAT: Kind = {
  type: "float",
  values: fc.constantFrom(0.5, -1.25, 16_777_216).map((n) => both(String(n))),
  unset: "0",
};
const TIME: Kind = {
  type: "google.protobuf.Timestamp",
  values: fc
    .tuple(
      fc.integer({ min: -62_135_596_800, max: 253_402_300_799 }),
      fc.constantFrom("", ".5", ".987654321"),
    )
    .map(([seconds, fraction]) => {
      const text = new Date(seconds * 1_000).toISOString().slice(0, 19);
      return { json: `"${text}${fraction}Z"`, sent: `"${text}"` };
    }),
  unset: "null",
};
const MEMBERS: [string, string][] = [
  ["KIND_FIRST", "First"],
  ["KIND_SECOND_ONE", "SecondOne"],
  ["KIND_BELOW_ZERO", "BelowZero"],
];
const KIND: Kind = {
  type: "Kind",
  values: fc.constantFrom(...MEMBERS).map(([json, sent]) => ({ json: `"${json}"`, sent: `"${sent}"` })),
  unset: '"Unspecified"',
};
const ENUM = "enum Kind { KIND_UNSPECIFIED = 0; KIND_FIRST = 1; KIND_SECOND_ONE = 7; KIND_BELOW_ZERO = -1; }";

const list = (kind: Kind): Kind => ({
  type: kind.type,
  label: "repeated",
  values: fc.array(kind.values, { maxLength: 3 }).map((items) => ({
    json: `[${items.map(({ json }) => json).join(",")}]`,
    sent: `[${items.map(({ sent }) => sent).join(",")}]`,
  })),
  unset: "[]",
});

/** A map of some of these keys, which are in order; the publisher writes them in another one. */
const map = (type: string, keys: readonly string[], kind: Kind): Kind => ({
  type: `map<${type}, ${kind.type}>`,
  values: fc.subarray([...keys]).chain((some) =>
    fc.tuple(...some.map(() => kind.values)).map((values) => {
      const entries = (text: "json" | "sent") =>
        values.map((value, n) => `${JSON.stringify(some[n])}:${value[text]}`);
      return { json: `{${entries("json").reverse().join(",")}}`, sent: `{${entries("sent").join(",")}}` };
    }),
  ),
  unset: "{}",
});
const TEXT_KEYS = ["", "a", "a b", "é"];

const optional = (kind: Kind): Kind => ({ ...kind, label: "optional", unset: "null" });

/** A oneof: at most one member has a value, and receivers get all. */
const oneof = (members: Fields): Kind => ({
  type: "",
  label: "oneof",
  members,
  unset: "",
  values: fc.constant(both("")),
});

const pascal = (name: string) =>
  name.replaceAll(/(?:^|_)([a-z0-9])/g, (_, first: string) => first.toUpperCase());

/** Values of a message. */
function valuesOf(fields: Fields): fc.Arbitrary<Payload> {
  const parts = Object.entries(fields).map(([name, kind]) =>
    kind.members ? membersOf(kind.members) : left(kind).map((value): [string, Value][] => [[name, value]]),
  );
  return fc.tuple(...parts).map((found) => {
    const all = found.flat();
    const json = all.flatMap(([name, value]) =>
      value.json === undefined ? [] : [`"${name}":${value.json}`],
    );
    const sent = all.map(([name, value]) => `"${pascal(name)}":${value.sent}`);
    // Publishers write fields in any order.
    return {
      json: `{${json.reverse().join(",")}}`,
      sent: `{${sent.join(",")}}`,
      first: all[0]?.[1].sent ?? "",
    };
  });
}

/** Of a oneof, one member has a value or none. */
function membersOf(members: Fields): fc.Arbitrary<[string, Value][]> {
  const none: Value = { json: undefined, sent: "null" };
  const all = (chosen?: string, value = none) =>
    Object.keys(members).map((name): [string, Value] => [name, name === chosen ? value : none]);
  return fc.oneof(
    fc.constant(all()),
    ...Object.entries(members).map(([name, { values }]) => values.map((value) => all(name, value))),
  );
}

/** The declarations of fields. Their numbers fall, so that the order of names is not that of numbers. */
function declare(fields: Fields): string {
  const count = Object.values(fields).reduce(
    (sum, { members }) => sum + Object.keys(members ?? "1").length,
    0,
  );
  let number = count + 1;
  const field = (name: string, { label, type, options = "" }: Kind) => {
    number -= 1;
    return `${label ?? ""} ${type} ${name} = ${number} ${options};\n`;
  };
  return Object.entries(fields)
    .map(([name, kind]) =>
      kind.members
        ? `oneof ${name} {\n${Object.entries(kind.members)
            .map(([member, each]) => field(member, each))
            .join("")}}\n`
        : field(name, kind),
    )
    .join("");
}

/** A field that a message of its own is in. */
const part = (type: string, fields: Fields): Kind => ({ type, values: valuesOf(fields), unset: "null" });
/** A field where a recursive message ends. */
const end = (type: string): Kind => ({
  type,
  values: fc.constant({ json: undefined, sent: "null" }),
  unset: "null",
});

/** The searchable fields. No two events have the same value. */
const REFERENCE: Kind = {
  type: "string",
  options:
    '[(webhook.v1.required) = true, (webhook.v1.searchable) = true, (webhook.v1.example) = "Nº-1 «ü» 🧾"]',
  values: fc.uuid().map((id) => both(`"ü ${id}"`)),
  unset: undefined,
};
const NUMBER: Kind = {
  type: "int64",
  options:
    '[(webhook.v1.required) = true, (webhook.v1.searchable) = true, (webhook.v1.example) = "-9223372036854775808"]',
  values: fc.noBias(fc.bigInt({ min: 2n ** 62n, max: 2n ** 63n - 1n })).map((n) => quoted(String(n))),
  unset: undefined,
};

const MONEY_FIELDS: Fields = { currency: STRING, units: INT64, nanos: INT32 };
const MONEY = part("Money", MONEY_FIELDS);
const LINE_FIELDS: Fields = { sku: STRING, price: MONEY, discounts: list(MONEY), kinds: list(KIND) };
const LINE = part("Line", LINE_FIELDS);
const GROUP_FIELDS: Fields = { title: STRING, lines: list(LINE) };
const GROUP = part("Group", GROUP_FIELDS);

const treeFields = (levels: number): Fields => {
  const inner = levels === 0 ? end("TreeGrown") : part("TreeGrown", treeFields(levels - 1));
  return {
    reference: REFERENCE,
    next: inner,
    children: levels === 0 ? { ...list(inner), values: fc.constant(both("[]")) } : list(inner),
    named: map("string", levels === 0 ? [] : ["a", "b"], inner),
  };
};
const leftFields = (levels: number): Fields => ({
  name: STRING,
  right: levels === 0 ? end("Right") : part("Right", rightFields(levels - 1)),
});
const rightFields = (levels: number): Fields => ({
  amount: UINT64,
  left: levels === 0 ? end("Left") : part("Left", leftFields(levels - 1)),
});
const SCALARS = [INT32, STRING, INT64, BOOL, UINT64, DOUBLE, BYTES, KIND];
const wideFields: Fields = Object.fromEntries(
  Array.from({ length: 199 }, (_, n) => [`field_${n}`, SCALARS[n % SCALARS.length] as Kind]),
);
/** Messages within each other, 63 levels below the event. */
const DEEPEST = 63;
const deepFields = (level: number): Fields =>
  level === DEEPEST
    ? { end: INT64 }
    : { inner: { ...part(`Deep${level + 1}`, deepFields(level + 1)), unset: undefined } };

/** By the names of event types: those of proto3. */
const IMPLICIT: Record<string, Fields> = {
  TextWritten: { reference: REFERENCE, text: STRING, texts: list(STRING), other: optional(STRING) },
  MoneyMoved: { reference: REFERENCE, total: MONEY, fees: list(MONEY), tax: optional(MONEY) },
  GroupsListed: { reference: REFERENCE, groups: list(GROUP), first: GROUP },
  EnumsChosen: {
    number: NUMBER,
    kind: KIND,
    kinds: list(KIND),
    other: optional(KIND),
    by: map("string", TEXT_KEYS, KIND),
  },
  TextsMapped: {
    reference: REFERENCE,
    texts: map("string", TEXT_KEYS, STRING),
    times: map("string", TEXT_KEYS, TIME),
  },
  NumbersMapped: {
    reference: REFERENCE,
    by_number: map("int32", ["1", "7", "2147483647"], INT64),
    by_flag: map("bool", ["false", "true"], BYTES),
    by_count: map("uint64", ["3", "18446744073709551615"], DOUBLE),
  },
  MessagesMapped: {
    reference: REFERENCE,
    amounts: map("string", TEXT_KEYS, MONEY),
    lines: map("string", ["x"], LINE),
  },
  SignedCounted: {
    number: NUMBER,
    a: INT64,
    b: of(INT64, "sint64"),
    c: of(INT64, "sfixed64"),
    all: list(INT64),
  },
  UnsignedCounted: {
    number: NUMBER,
    a: UINT64,
    b: of(UINT64, "fixed64"),
    all: list(UINT64),
    other: optional(UINT64),
  },
  SmallCounted: {
    number: NUMBER,
    a: INT32,
    b: of(INT32, "sint32"),
    c: of(INT32, "sfixed32"),
    d: UINT32,
    e: of(UINT32, "fixed32"),
  },
  WideRecorded: { reference: REFERENCE, ...wideFields },
  TreeGrown: treeFields(3),
  PairLinked: {
    reference: REFERENCE,
    left: part("Left", leftFields(4)),
    right: part("Right", rightFields(3)),
  },
  ChoiceMade: {
    reference: REFERENCE,
    by: oneof({ card: STRING, account: INT64, at: TIME, money: MONEY, kind: KIND }),
    note: STRING,
    how: oneof({ fast: BOOL, bytes: BYTES }),
  },
  BytesStored: { reference: REFERENCE, document: BYTES, parts: list(BYTES), other: optional(BYTES) },
  TimesTold: { reference: REFERENCE, at: TIME, all: list(TIME), other: optional(TIME) },
  SizesMeasured: {
    reference: REFERENCE,
    width: DOUBLE,
    height: FLOAT,
    all: list(DOUBLE),
    other: optional(FLOAT),
  },
  FlagsSet: { reference: REFERENCE, on: BOOL, all: list(BOOL), other: optional(BOOL) },
  AllLeft: {
    number: NUMBER,
    a: optional(STRING),
    b: optional(INT64),
    c: optional(BOOL),
    d: optional(DOUBLE),
    e: optional(KIND),
  },
  DeepNested: { reference: REFERENCE, inner: { ...part("Deep1", deepFields(1)), unset: undefined } },
  OddNamed: {
    reference: REFERENCE,
    constructor: STRING,
    to_string: INT64,
    value_of: BOOL,
    case: MONEY,
    value: list(STRING),
    class: optional(INT32),
    a1_b2: STRING,
  },
  NothingElse: { number: NUMBER },
};

/** Fields of a syntax in which a value that is left out is null. */
const explicit = (fields: Fields, label?: "optional"): Fields =>
  Object.fromEntries(
    Object.entries(fields).map(([name, kind]) => {
      if (kind.label === "repeated" || kind.members || kind.type.startsWith("map<")) return [name, kind];
      return [name, { ...kind, label, unset: kind.unset === undefined ? undefined : "null" } as Kind];
    }),
  );
const explicitTypes = (prefix: string, label?: "optional"): Record<string, Fields> => {
  const money = part("Money", explicit(MONEY_FIELDS, label));
  const line = part("Line", explicit({ ...LINE_FIELDS, price: money, discounts: list(money) }, label));
  const types: Record<string, Fields> = {
    Money: { reference: REFERENCE, total: money, all: list(money), by: map("string", TEXT_KEYS, money) },
    Lines: { reference: REFERENCE, lines: list(line), kind: KIND, kinds: list(KIND) },
    Scalars: {
      number: NUMBER,
      a: INT64,
      b: UINT64,
      c: STRING,
      d: BYTES,
      e: BOOL,
      f: DOUBLE,
      g: FLOAT,
      h: TIME,
    },
    Choice: { reference: REFERENCE, by: oneof({ text: STRING, amount: INT64, money }), list: list(INT64) },
  };
  return Object.fromEntries(
    Object.entries(types).map(([name, fields]) => [prefix + name, explicit(fields, label)]),
  );
};

/** The comment of an event type, as its file has it. */
const commentOf = (name: string) => `${name}: «Grüße», 日本語, 🧾 and a backslash \\.`;

function message(name: string, fields: Fields, options = ""): string {
  return `message ${name} {\n${options}${declare(fields)}}\n`;
}

interface Source {
  path: string;
  header: string;
  package: string;
  types: Record<string, Fields>;
  /** Further messages. */
  parts: string;
}

const moneyParts = (label?: "optional") => {
  const own = (fields: Fields) => (label === undefined ? explicit(fields) : explicit(fields, label));
  return message("Money", own(MONEY_FIELDS)) + message("Line", own(LINE_FIELDS));
};
const SOURCES: Source[] = [
  {
    path: "thirty/v1/implicit.proto",
    header: 'syntax = "proto3";',
    package: "thirty.v1",
    types: IMPLICIT,
    parts: [
      message("Money", MONEY_FIELDS),
      message("Line", LINE_FIELDS),
      message("Group", GROUP_FIELDS),
      message("Left", leftFields(0)),
      message("Right", rightFields(0)),
      ...Array.from({ length: DEEPEST }, (_, n) => message(`Deep${n + 1}`, deepFields(n + 1))),
    ].join(""),
  },
  {
    path: "thirty/legacy/legacy.proto",
    header: 'syntax = "proto2";',
    package: "thirty.legacy",
    types: explicitTypes("Legacy", "optional"),
    parts: moneyParts("optional"),
  },
  {
    path: "thirty/edition/edition.proto",
    header: 'edition = "2023";',
    package: "thirty.edition",
    types: explicitTypes("Edition"),
    parts: moneyParts(),
  },
];

const all = SOURCES.flatMap((source) =>
  Object.entries(source.types).map(([name, fields]) => ({ source, name, fields })),
);

/** Thirty event types: half of them with a number, a third with an alias. */
export const THIRTY_TYPES: readonly ThirtyType[] = all.map(({ source, name, fields }, n) => ({
  name,
  message: `${source.package}.${name}`,
  alias: n % 3 === 0 ? `thirty.${name.toLowerCase()}` : undefined,
  process: n % 2 === 0 ? 10_000 - n : undefined,
  comment: commentOf(name),
  key: Object.keys(fields)[0] as string,
  values: valuesOf(fields),
}));

/** Their proto files by path. */
export const THIRTY_FILES: Readonly<Record<string, string>> = Object.fromEntries(
  SOURCES.map((source) => [
    source.path,
    `${source.header}
package ${source.package};
import "google/protobuf/timestamp.proto";
import "webhook/v1/options.proto";
${ENUM}
${source.parts}
${THIRTY_TYPES.filter((type) => type.message === `${source.package}.${type.name}`)
  .map((type) => {
    const options = [
      type.process === undefined ? "" : `process: ${type.process}`,
      `name: "${type.name}"`,
      type.alias === undefined ? "" : `alias: "${type.alias}"`,
    ].join(" ");
    const option = `  option (webhook.v1.event_type) = { ${options} };\n`;
    return `// ${type.comment}\n${message(type.name, source.types[type.name] as Fields, option)}`;
  })
  .join("")}`,
  ]),
);
