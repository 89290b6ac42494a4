import {
  type CelEnv,
  type CelFunc,
  CelScalar,
  type CelType,
  isCelError,
  listType,
  mapType,
  objectType,
  parse,
  plan,
} from "@bufbuild/cel";
import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { RE2JS } from "@bufbuild/re2";
import { type Expr, ExprMaker, type Node, type Parsed } from "./expr.ts";
import { ExpressionError } from "./expression-error.ts";
import {
  areComparable,
  common,
  elementOf,
  isAny,
  isAssignable,
  mapOf,
  NAMED_TYPES,
  optionalType,
  optionalValue,
  resultType,
  typeName,
} from "./result-types.ts";
import { EXAMPLES } from "./syntax.ts";

const { BOOL, BYTES, DOUBLE, DYN, INT, NULL, STRING, TYPE, UINT } = CelScalar;

/** Types that CEL sees as values, though they are messages. */
const OPAQUE = new Set(["google.protobuf.Timestamp", "google.protobuf.Duration"]);
/** The texts that functions take, by function; those not listed take a time zone. */
const TEXTS = new Map([
  ["timestamp", 'a time such as "2026-11-21T09:30:00Z"'],
  ["duration", 'a duration such as "1h30m"'],
]);
const TIME_ZONE = 'a time zone such as "Europe/Berlin" or "+01:00"';
/** A time to try time zones with. */
const SOME_TIME = parse("timestamp(0)").expr;
/** With package and enclosing message. */
const MAX_NAME_PARTS = 8;

/**
 * Finds the type of an expression. The library evaluates expressions, but checks the types of constants and variables only.
 * What depends on types is resolved in the expression: access to fields of optionals, and names of functions.
 *
 * @throws ExpressionError that names what is wrong and its position in the text
 */
export function typeOf(env: CelEnv, parsed: Parsed, examples = EXAMPLES): CelType {
  return new TypeChecker(env, new ExprMaker(parsed), examples).type(parsed.expr, new Map());
}

/** The types of the variables of enclosing loops, by name. */
type Loops = ReadonlyMap<string, CelType>;

class TypeChecker {
  readonly #env: CelEnv;
  readonly #make: ExprMaker;
  readonly #examples: typeof EXAMPLES;

  constructor(env: CelEnv, make: ExprMaker, examples: typeof EXAMPLES) {
    this.#env = env;
    this.#make = make;
    this.#examples = examples;
  }

  type(expr: Expr, loops: Loops): CelType {
    const { exprKind } = expr;
    switch (exprKind.case) {
      case "constExpr":
        return constantType(exprKind.value);
      case "identExpr":
        return this.#identifier(expr, exprKind.value.name, loops);
      case "selectExpr":
        return this.#select(expr, exprKind.value, loops);
      case "callExpr":
        return this.#call(expr, exprKind.value, loops);
      case "listExpr": {
        const elements = exprKind.value.elements.map((element) => this.type(element, loops));
        return listType(common(elements));
      }
      case "comprehensionExpr":
        return this.#loop(exprKind.value, loops);
      case "structExpr":
        return this.#map(expr, exprKind.value, loops);
      default:
        throw this.#error(expr, "this cannot be used in an expression");
    }
  }

  #map(expr: Expr, { entries, messageName }: Node<"structExpr">, loops: Loops): CelType {
    if (messageName !== "") throw this.#error(expr, "messages cannot be made in an expression");
    const keys = entries.flatMap(({ keyKind }) =>
      keyKind.case === "mapKey" ? this.type(keyKind.value, loops) : [],
    );
    const values = entries.flatMap(({ value }) => (value ? this.type(value, loops) : []));
    return mapOf(common(keys), common(values));
  }

  #identifier(expr: Expr, name: string, loops: Loops): CelType {
    const type = loops.get(name) ?? this.#env.variables.find(name);
    if (type) return type;
    if (NAMED_TYPES.has(name)) return TYPE;
    const known = [...loops.keys()].filter((each) => !each.startsWith("@"));
    const names = [...known, ...[...this.#env.variables].map(([each]) => each)];
    throw this.#error(expr, `there is no ${name}; allowed: ${names.join(", ")}`);
  }

  #select(expr: Expr, select: Node<"selectExpr">, loops: Loops): CelType {
    const { operand, field: name, testOnly } = select;
    if (!operand) throw this.#error(expr, "something is missing before the dot");
    const enumValue = this.#enumValue(expr, loops);
    if (enumValue) return enumValue;
    const of = this.type(operand, loops);
    const optional = optionalValue(of);
    if (!optional) {
      const type = this.#field(expr, of, name);
      return testOnly ? BOOL : type;
    }
    const field = this.#make.call(expr, "@optionalField", [operand, this.#make.constant(expr, name)]);
    expr.exprKind = testOnly ? this.#make.call(expr, "hasValue", [], field).exprKind : field.exprKind;
    const type = optionalType(this.#field(expr, optional, name));
    return testOnly ? BOOL : type;
  }

  /** The type of a field, or of a map's value. */
  #field(expr: Expr, of: CelType, name: string): CelType {
    if (of.kind === "map" && isAssignable(of.key, STRING)) return of.value;
    if (isAny(of)) return DYN;
    if (of.kind !== "object" || !of.desc || OPAQUE.has(of.name)) {
      throw this.#error(expr, `${typeName(of)} has no fields, so .${name} is not possible`);
    }
    const field = of.desc.fields.find((each) => each.name === name);
    if (field) return fieldType(field);
    const fields = of.desc.fields.map((each) => each.name).join(", ");
    throw this.#error(expr, `${of.desc.name} has no field ${name}; its fields: ${fields}`);
  }

  /** The type of `DocumentKind.DOCUMENT_KIND_INVOICE`; undefined if the expression is not the member of an enum. */
  #enumValue(expr: Expr, loops: Loops): CelType | undefined {
    const path = pathOf(expr);
    const [first = "", ...others] = path ?? [];
    if (!path || loops.has(first) || this.#env.variables.find(first)) return undefined;
    const member = others.pop();
    const name = [first, ...others].join(".");
    const desc =
      this.#env.registry.getEnum(`${this.#env.namespace}.${name}`) ?? this.#env.registry.getEnum(name);
    if (!desc) return undefined;
    if (desc.values.some((value) => value.name === member)) return INT;
    const members = desc.values.map((value) => value.name).join(", ");
    throw this.#error(expr, `${name} has no ${member}; its values: ${members}`);
  }

  #call(expr: Expr, call: Node<"callExpr">, loops: Loops): CelType {
    this.#resolveName(expr, call, loops);
    const { function: name, args } = call;
    const target = call.target && this.type(call.target, loops);
    const types = args.map((arg) => this.type(arg, loops));
    const [first = DYN, second = DYN, third = DYN] = types;
    const wrong = () => this.#wrongTypes(expr, name, target, types);
    switch (name) {
      case "@not_strictly_false":
        return BOOL;
      case "_&&_":
      case "_||_":
        if (!types.every((type) => isAssignable(type, BOOL))) throw wrong();
        return BOOL;
      case "_?_:_":
        if (!isAssignable(first, BOOL) || !areComparable(second, third)) throw wrong();
        return common([second, third]);
      case "_==_":
      case "_!=_":
        if (!areComparable(first, second)) throw wrong();
        return BOOL;
      case "@in":
        if (!isIn(first, second)) throw wrong();
        return BOOL;
      case "_[_]": {
        const optional = optionalValue(first);
        if (optional) call.function = "@optionalElement";
        const type = elementAt(optional ?? first, second);
        if (!type) throw wrong();
        return optional ? optionalType(type) : type;
      }
      case "@optionalElement": {
        const type = elementAt(optionalValue(first) ?? first, second);
        if (!type) throw wrong();
        return optionalType(type);
      }
      case "@optionalField": {
        const field = args[1]?.exprKind.case === "constExpr" ? args[1].exprKind.value.constantKind.value : "";
        return optionalType(this.#field(expr, optionalValue(first) ?? first, String(field)));
      }
    }
    const functions = this.#env.funcs.find(name);
    if (!functions) throw this.#error(expr, `there is no function ${name}`);
    const taken = [...functions].filter((each) => accepts(each, target, types));
    const [chosen] = taken;
    if (!chosen) throw name === "@keys" ? this.#noList(expr, first) : wrong();
    this.#assertText(expr, call, chosen);
    if (name === "matches") assertPattern(args.at(-1));
    const results = taken.map(({ result }) => result);
    const type = resultType(name, results, target ? [target, ...types] : types);
    if (!type) throw wrong();
    return type;
  }

  /** Makes `math.abs(x)`, a method of `math` to the parser, a function. */
  #resolveName(expr: Expr, call: Node<"callExpr">, loops: Loops): void {
    const path = call.target && pathOf(call.target);
    const [first = ""] = path ?? [];
    if (!path || loops.has(first) || this.#env.variables.find(first)) return;
    const name = [...path, call.function].join(".");
    if (this.#env.funcs.find(name)) {
      call.function = name;
      delete call.target;
    } else if ([...this.#env.funcs].some((each) => each.name.startsWith(`${first}.`)))
      throw this.#error(expr, `there is no function ${name}`);
  }

  /** @throws ExpressionError for a constant that is no time, duration or time zone, with which the call always fails */
  #assertText(expr: Expr, call: Node<"callExpr">, { target, result }: CelFunc): void {
    const [text, ...others] = call.args;
    const constant = text?.exprKind.case === "constExpr" ? text.exprKind.value.constantKind : undefined;
    if (constant?.case !== "stringValue" || others.length > 0) return;
    if (!OPAQUE.has(result.name) && !(target && OPAQUE.has(target.name))) return;
    const value = target ? { ...call, target: SOME_TIME } : call;
    const evaluate = plan(this.#env, { ...expr, exprKind: { case: "callExpr", value } });
    if (!isCelError(evaluate({}))) return;
    const [name, given] = [call.function, JSON.stringify(constant.value)];
    throw this.#error(expr, `${name} does not take ${given}; allowed: ${TEXTS.get(name) ?? TIME_ZONE}`);
  }

  /** A macro such as `exists`, which the parser has turned into a loop. */
  #loop(loop: Node<"comprehensionExpr">, loops: Loops): CelType {
    const { iterVar, accuVar, iterRange, accuInit, loopCondition, loopStep, result } = loop;
    if (!iterRange || !accuInit || !loopCondition || !loopStep || !result)
      throw new ExpressionError("the expression has an incomplete loop");
    const range = this.type(iterRange, loops);
    if (range.kind !== "list" && range.kind !== "map" && !isAny(range)) throw this.#noList(iterRange, range);
    const item = range.kind === "map" ? range.key : elementOf(range);
    const within = new Map([...loops, [iterVar, item]]);
    const initial = this.type(accuInit, within);
    const step = this.type(loopStep, new Map([...within, [accuVar, initial]]));
    const whole = new Map([...within, [accuVar, step]]);
    this.type(loopCondition, whole);
    return this.type(result, whole);
  }

  #wrongTypes(
    expr: Expr,
    name: string,
    target: CelType | undefined,
    args: readonly CelType[],
  ): ExpressionError {
    const given = [...(target ? [target] : []), ...args].map(typeName);
    const operator = name.replaceAll("_", " ").trim().replace("@", "");
    const enumHint =
      given.includes("int") && given.includes("string")
        ? `; an enum is compared with a value such as ${this.#examples.enumValue}`
        : "";
    const nullHint = given.some((each) => each.endsWith("null"))
      ? `; an unset field has its default value: use has, such as has(${this.#examples.field})`
      : "";
    return this.#error(expr, `${operator} does not take ${given.join(" and ")}${enumHint}${nullHint}`);
  }

  #noList(expr: Expr, type: CelType): ExpressionError {
    return this.#error(expr, `${typeName(type)} is no list, so it has no exists, all, map or filter`);
  }

  #error(expr: Expr, what: string): ExpressionError {
    const position = this.#make.offsetOf(expr);
    return new ExpressionError(position === undefined ? what : `at character ${position + 1}: ${what}`);
  }
}

/** @throws ExpressionError for a regular expression that is not a constant, or not valid */
function assertPattern(expr: Expr | undefined): void {
  const constant = expr?.exprKind.case === "constExpr" ? expr.exprKind.value.constantKind : undefined;
  if (constant?.case !== "stringValue")
    throw new ExpressionError(
      "matches takes a regular expression in quotes, not one that depends on a variable",
    );
  try {
    RE2JS.compile(constant.value);
  } catch (error) {
    const fault = (error as Error).message.replace(/^error parsing regexp: /, "");
    throw new ExpressionError(
      `the regular expression ${constant.value} is not valid: ${fault}; use the syntax of RE2, which has no lookahead and no backreferences`,
    );
  }
}

/**
 * `["DocumentKind", "DOCUMENT_KIND_INVOICE"]`; undefined if the expression is not names with dots between them, or has more
 * parts than the name of an enum's member.
 */
function pathOf({ exprKind }: Expr, maxParts = MAX_NAME_PARTS): string[] | undefined {
  if (maxParts === 0) return undefined;
  if (exprKind.case === "identExpr") return [exprKind.value.name];
  if (exprKind.case !== "selectExpr" || !exprKind.value.operand || exprKind.value.testOnly) return undefined;
  const before = pathOf(exprKind.value.operand, maxParts - 1);
  return before && [...before, exprKind.value.field];
}

function constantType({ constantKind }: Node<"constExpr">): CelType {
  switch (constantKind.case) {
    case "boolValue":
      return BOOL;
    case "int64Value":
      return INT;
    case "uint64Value":
      return UINT;
    case "doubleValue":
      return DOUBLE;
    case "stringValue":
      return STRING;
    case "bytesValue":
      return BYTES;
    default:
      return NULL;
  }
}

/** The type of a field, as an expression sees it. */
export function fieldType(field: DescField): CelType {
  if (field.fieldKind === "list") return listType(singleType(field));
  if (field.fieldKind !== "map") return singleType(field);
  return mapType(scalarType(field.mapKey) as typeof STRING, singleType(field));
}

function singleType(field: DescField): CelType {
  if (field.message) return objectType(field.message);
  if (field.enum) return INT;
  return scalarType(field.scalar as ScalarType);
}

function scalarType(scalar: ScalarType): CelType {
  switch (scalar) {
    case ScalarType.BOOL:
      return BOOL;
    case ScalarType.STRING:
      return STRING;
    case ScalarType.BYTES:
      return BYTES;
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return DOUBLE;
    case ScalarType.UINT32:
    case ScalarType.UINT64:
    case ScalarType.FIXED32:
    case ScalarType.FIXED64:
      return UINT;
    default:
      return INT;
  }
}

function accepts(
  { target: takes, arguments: parameters }: CelFunc,
  target: CelType | undefined,
  args: readonly CelType[],
) {
  if ((takes === undefined) !== (target === undefined) || parameters.length !== args.length) return false;
  if (takes && target && !isAssignable(target, takes)) return false;
  return parameters.every((parameter, n) => isAssignable(args[n] as CelType, parameter));
}

/** The type of an element of a list or map; undefined if there is none with such an index or key. */
function elementAt(of: CelType, index: CelType): CelType | undefined {
  if (isAny(of)) return DYN;
  if (of.kind === "list") return isAssignable(index, INT) ? of.element : undefined;
  return of.kind === "map" && areComparable(index, of.key) ? of.value : undefined;
}

function isIn(item: CelType, collection: CelType): boolean {
  if (isAny(collection)) return true;
  if (collection.kind === "list") return areComparable(item, collection.element);
  return collection.kind === "map" && isAssignable(item, collection.key);
}
