import { spawnSync } from "node:child_process";
import path from "node:path";
import { CelScalar, celEnv, isCelError } from "@bufbuild/cel";
import { create, createRegistry } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { OrderDispatchedSchema, WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { compileFilter, filterEvent } from "../../../src/contract/filters/filter.ts";
import { FILTER_FUNCTIONS } from "../../../src/contract/filters/function-list.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { compileExpression } from "../../../src/lib/cel/expression.ts";
import { ExpressionError } from "../../../src/lib/cel/expression-error.ts";
import { functions } from "../../../src/lib/cel/functions/all.ts";
import { typeName } from "../../../src/lib/cel/result-types.ts";
import { read } from "../../repository/project.ts";

const { ORDER_DISPATCHED } = WebhookProcess;
const order = create(OrderDispatchedSchema, {
  orderId: 7n,
  orderNumber: "SO-10056-eu",
  carrier: "DHL",
  lines: [
    { productId: 7n, sku: "LAMP-01", quantity: 2 },
    { productId: 8n, sku: "DESK-02", quantity: 1 },
  ],
});
const event = filterEvent(ORDER_DISPATCHED, jsonWriter(OrderDispatchedSchema, "payload")(order), "tenant-42");
const NONE = { namespace: "", registry: createRegistry(), variables: { any: CelScalar.DYN } };

test.each([
  // Texts.
  'event.carrier.lowerAscii() == "dhl" && "äB".upperAscii() == "äB"',
  'event.order_number.split("-")[1] == "10056" && event.order_number.split("-", 2)[1] == "10056-eu"',
  'event.order_number.split("-", 0) == [] && "a😀".split("") == ["a", "😀"]',
  'event.lines.map(line, line.sku).join(", ") == "LAMP-01, DESK-02" && ["a", "b"].join() == "ab"',
  'event.order_number.substring(3, 8) == "10056" && "😀x".substring(1) == "x"',
  '"😀x".indexOf("x") == 1 && "x😀x".lastIndexOf("x") == 2 && "x😀x".indexOf("x", 1) == 2 && "x".indexOf("y") == -1',
  '"😀x".charAt(0) == "😀" && "x".charAt(1) == "" && "x😀".reverse() == "😀x"',
  '"a-b-c".replace("-", "$&") == "a$&b$&c" && "a-b-c".replace("-", "+", 1) == "a+b-c" && "😀b".replace("", ".") == ".😀.b."',
  '"ab".replace("", ".", 2) == ".a.b" && "ab".replace("a", "", 0) == "ab" && "ab".replace("b", "") == "a"',
  '"  x ".trim() == "x" && "%s-%.1f %d%%".format(["x", 1.25, 7]) == "x-1.2 7%"',
  'strings.quote("a\\"b") == "\\"a\\\\\\"b\\""',
  // Numbers.
  "math.greatest(1, 2.5, 2) == 2.5 && math.least([3, 1, 2]) == 1 && math.greatest(event.lines.map(l, l.quantity)) == 2",
  "math.abs(-7) == 7 && math.ceil(1.2) == 2.0 && math.floor(-1.2) == -2.0 && math.round(-2.5) == -3.0 && math.trunc(1.9) == 1.0",
  "math.sign(-3.5) == -1.0 && math.sign(0) == 0 && math.sqrt(9) == 3.0 && math.isNaN(math.sqrt(-1))",
  "math.bitAnd(6, 3) == 2 && math.bitOr(6, 3) == 7 && math.bitXor(6u, 3u) == 5u && math.bitNot(0) == -1",
  "math.bitShiftLeft(1, 4) == 16 && math.bitShiftRight(-1, 63) == 1 && math.bitShiftLeft(1, 64) == 0",
  // Lists and sets.
  "lists.range(4).slice(1, 3) == [1, 2] && lists.range(-1) == []",
  "[[1, 2], [3, [4]]].flatten() == [1, 2, 3, [4]] && [[1, [2, [3]]]].flatten(2) == [1, 2, [3]]",
  "[1, 1.0, 2u, 2, 'a', 'a', [1], [1]].distinct() == [1, 2, 'a', [1]]",
  "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [duration('1h'), duration('1s')].sort()[0] == duration('1s')",
  "event.lines.sortBy(line, line.quantity)[0].sku == 'DESK-02' && [1, 2].reverse() == [2, 1]",
  "event.lines.sortBy(line, -line.quantity).first().value().sku == 'LAMP-01'",
  "sets.contains([1, 2, 3], [2, 1.0]) && sets.contains([1], []) && !sets.contains([1], [2])",
  "sets.equivalent([1, 2, 1], [2, 1]) && !sets.equivalent([1], [1, 2]) && sets.intersects([1, 2], [3, 2])",
  "sets.intersects(event.lines.map(line, line.sku), ['LAMP-01', 'LAMP-02'])",
  // Maps.
  "{'DHL': 3, 'UPS': 5}[event.carrier] == 3 && 'DHL' in {'DHL': 3}",
  "{'UPS': 5}[?event.carrier].orValue(9) == 9",
  // Values that may be missing.
  "event.?carrier.orValue('none') == 'DHL' && event.?tracking_number.orValue('none') == 'none'",
  "!event.?tracking_number.hasValue() && event.?lines.hasValue()",
  "event.lines[?0].sku.orValue('') == 'LAMP-01' && event.lines[?2].sku.orValue('') == ''",
  "event.lines[?0].?sku.optMap(sku, sku.lowerAscii()).orValue('') == 'lamp-01'",
  "event.lines.first().optFlatMap(line, line.?sku).value() == 'LAMP-01' && [].last() == optional.none()",
  "event.?tracking_number.or(event.?carrier).value() == 'DHL' && has(event.?lines[0].sku)",
  "optional.of(1) == optional.of(1) && optional.ofNonZeroValue('') == optional.none()",
  "[?event.?tracking_number, ?event.?carrier, 'x'] == ['DHL', 'x'] && {?'a': optional.none(), 'b': 1} == {'b': 1}",
  "optional.unwrap([optional.of(1), optional.none()]) == [1] && [event.?carrier].unwrapOpt() == ['DHL']",
  "event . ? carrier // a comment with .?x and [?\n . orValue( 'a.?b[?c' ) == \"DHL\"",
  "(true ? [1] : [2])[?0].orValue(0) == 1 && (false ? event : event).?carrier.hasValue()",
  // Loops with two variables, and names for values.
  "event.lines.exists(i, line, i == 1 && line.sku == 'DESK-02') && event.lines.all(i, line, line.quantity == 2 - i)",
  "event.lines.existsOne(i, line, i > 0) && {'a': 1}.exists(k, v, k == 'a' && v == 1)",
  "event.lines.transformList(i, line, i * line.quantity) == [0, 1] && [5, 6].transformList(i, v, i > 0, v) == [6]",
  "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, k + k) == {'b': 'bb'} && [7].transformMapEntry(i, v, {v: i}) == {7: 0}",
  "[[1, 2], [3]].all(i, row, row.all(j, v, v == i * 2 + j + 1))",
  "cel.bind(number, event.order_number.split('-'), number[0] == 'SO' && number[2] == 'eu')",
  // Types and times.
  "type(event.carrier) == string && type(1) != double && type([]) == list",
  'timestamp(1) == timestamp("1970-01-01T00:00:01Z") && timestamp("2026-03-08T02:30:00-08:00").getHours() == 10',
  'timestamp("2026-03-29T01:30:00Z").getHours("Europe/Berlin") == 3 && timestamp("2026-01-01T00:00:00Z").getDayOfYear() == 0',
  'timestamp("2026-01-01T00:30:00Z").getHours("05:30") == 6 && timestamp("2026-11-29T00:00:00Z").getDayOfWeek() == 0',
])("%s", (expression) => {
  expect(compileFilter(ORDER_DISPATCHED, expression).matches(event)).toBe(true);
});

test.each(
  Object.entries({
    "event.order_id.lowerAscii() == ''": /lowerAscii does not take int/,
    "event.carrier.split('-')[0] == 7": /== does not take string and int/,
    "event.carrier.substring('x') == ''": /substring does not take string and string/,
    "event.lines.join() == ''": /join does not take list of OrderLine/,
    "math.greatest('a') == 1": /math\.greatest does not take string/,
    "math.abs('a') == 1": /math\.abs does not take string/,
    "math.max(1) == 1": /^at character \d+: there is no function math\.max$/,
    "sets.contains([1], ['a'])": /sets\.contains does not take list of int and list of string/,
    "event.lines.distinct()[0].price == 1": /OrderLine has no field price/,
    "event.lines.filter(line, true)[0].price == 1": /OrderLine has no field price/,
    "event.?carier.orValue('') == ''": /OrderDispatched has no field carier; its fields: order_id, /,
    "event.?carrier == 'DHL'": /== does not take optional string and string/,
    "event.?carrier.orValue(7) == 7": /orValue does not take optional string and int/,
    "event.carrier.orValue('') == ''": /orValue does not take string and string/,
    "event.lines[?0].price.hasValue()": /OrderLine has no field price/,
    "event.lines[?'a'].hasValue()": /does not take list of OrderLine and string/,
    "event.carrier.exists(i, c, true)": /string is no list/,
    "event.lines.exists(i, line, line.price > 1)": /OrderLine has no field price/,
    "event.lines.transformList(i, line, i) == ['a']": /== does not take list of int and list of string/,
    "event?.carrier == 'DHL'":
      /optional fields and elements are written event\.\?carrier and event\.lines\[\?0\]/,
    "event.lines?[0] == 'DHL'": /optional fields and elements are written/,
    'event.dispatched_at.getHours("Mars") == 1': /getHours does not take "Mars"; allowed: a time zone/,
  }),
)("%s is refused", (expression, message) => {
  expect(() => compileFilter(ORDER_DISPATCHED, expression)).toThrow(ExpressionError);
  expect(() => compileFilter(ORDER_DISPATCHED, expression)).toThrow(message);
});

test.each([
  ["[1].filter(x, true)", "list of int"],
  ["[]", "list of dyn"],
  ["[1, 'a']", "list of dyn"],
  ["[[1], []]", "list of list of int"],
  ["optional.none().or(optional.of(1)).orValue(2)", "int"],
  ["[optional.none(), optional.of('a')]", "list of optional string"],
  ["{'a': [1]}.transformMap(k, v, v[0])", "map of string to int"],
  ["[{'a': 1}].map(m, m.?a)", "list of optional int"],
  ["math.greatest([1, 2])", "int"],
  ["['b', 'a'].sort().reverse().first()", "optional string"],
  ["any + any", "dyn"],
])("the type of %s is %s", (expression, type) => {
  expect(typeName(compileExpression(NONE, expression).type)).toBe(type);
});

test.each(
  Object.entries({
    "'abc'.substring(4)": /index 4 is not from 0 to 3/,
    "'abc'.charAt(-1)": /index -1 is not from 0 to 3/,
    "math.abs(-9223372036854775808)": /integer overflow/,
    "[1].slice(0, 2)": /no slice from 0 to 2 of a list with 1 elements/,
    "[1, 'a'].sort()": /only values of one type can be sorted/,
    "[[1]].sort()": /only numbers, texts, bools, bytes, times and durations can be sorted/,
    "optional.none().value()": /has no value: use orValue/,
    "[1, 1].transformMapEntry(i, v, {v: i})": /two values for the key 1/,
    "lists.range(1000000000)": /more than 100000 elements/,
    "timestamp(999999999999)": /timestamp out of range/,
  }),
)("%s fails, and says why", (expression, message) => {
  const result = compileExpression(NONE, expression).evaluate({});
  expect(isCelError(result) && result.message).toMatch(message);
});

test.each(["Asia/Kolkata", "America/New_York", "Pacific/Apia"])("times are those of UTC with TZ=%s", (TZ) => {
  const program = `
    import { createRegistry } from "@bufbuild/protobuf";
    import { compileExpression } from "./src/lib/cel/expression.ts";
    // Hours that clocks of the zones skip, the first hour of a year, and a year of one digit.
    const times = ["2026-03-08T02:30:00Z", "2026-01-01T00:00:00Z", "2011-12-30T12:00:00Z", "2026-07-01T23:59:59.999Z", "0009-01-01T00:00:00Z"];
    const parts = ["FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Hours", "Minutes", "Seconds", "Milliseconds"];
    const scope = { namespace: "", registry: createRegistry(), variables: {} };
    const read = (time, part, zone = "") =>
      Number(compileExpression(scope, 'timestamp("' + time + '").get' + part + "(" + zone + ")").evaluate({}));
    console.log(JSON.stringify([times.map((time) => parts.map((part) => read(time, part))), read(times[0], "Hours", '"Europe/Berlin"')]));`;
  const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "--eval", program];
  const { stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: path.resolve(import.meta.dirname, "../../.."),
    env: { ...process.env, TZ },
    encoding: "utf8",
  });
  expect(stderr).toBe("");
  expect(JSON.parse(stdout)).toEqual([
    [
      [2026, 2, 8, 7, 0, 66, 2, 30, 0, 0],
      [2026, 0, 1, 0, 4, 0, 0, 0, 0, 0],
      [2011, 11, 30, 29, 5, 363, 12, 0, 0, 0],
      [2026, 6, 1, 0, 3, 181, 23, 59, 59, 999],
      [9, 0, 1, 0, 4, 0, 0, 0, 0, 0],
    ],
    3,
  ]);
});

/** What macros and syntax become. */
const HIDDEN = new Set([
  "in",
  "keys",
  "merge",
  "sortBy",
  "elements",
  "entries",
  "optionalField",
  "optionalElement",
  "not_strictly_false",
]);

test("the page and docs/filters.md list every function", () => {
  const listed = Object.values(FILTER_FUNCTIONS).flat().join("\n");
  const names = [...celEnv().funcs, ...functions].map(({ name }) => name.replace("@", ""));
  const missing = [...new Set(names)].filter(
    (name) => /^[a-z]/.test(name) && !HIDDEN.has(name) && !listed.includes(`${name}(`),
  );
  expect(missing).toEqual([]);
  const document = read("docs/filters.md");
  for (const [subject, uses] of Object.entries(FILTER_FUNCTIONS)) {
    const list = uses.map((use) => `- \`${use}\``).join("\n");
    expect(document).toContain(`### ${subject}\n\n${list}\n`);
  }
});
