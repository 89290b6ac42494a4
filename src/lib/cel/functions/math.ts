import {
  type CelFunc,
  CelScalar,
  type CelUint,
  type CelValue,
  celFunc,
  celUint,
  isCelList,
  isCelUint,
} from "@bufbuild/cel";
import { elementsOf } from "./values.ts";

const { BOOL, DOUBLE, DYN, INT, UINT } = CelScalar;
type Numeric = bigint | number | CelUint;

/** CEL's extension for numbers, version 2. `math.greatest` and `math.least` are macros. */
export const mathFunctions: CelFunc[] = [
  celFunc("math.@greatest", [DYN], DYN, (numbers) => best(numbers, (one, other) => one > other)),
  celFunc("math.@least", [DYN], DYN, (numbers) => best(numbers, (one, other) => one < other)),
  celFunc("math.ceil", [DOUBLE], DOUBLE, Math.ceil),
  celFunc("math.floor", [DOUBLE], DOUBLE, Math.floor),
  celFunc("math.trunc", [DOUBLE], DOUBLE, Math.trunc),
  // Halves are rounded away from zero.
  celFunc("math.round", [DOUBLE], DOUBLE, (x) => Math.sign(x) * Math.round(Math.abs(x))),
  celFunc("math.sqrt", [DOUBLE], DOUBLE, Math.sqrt),
  celFunc("math.sqrt", [INT], DOUBLE, (x) => Math.sqrt(Number(x))),
  celFunc("math.sqrt", [UINT], DOUBLE, (x) => Math.sqrt(Number(x.value))),
  celFunc("math.isNaN", [DOUBLE], BOOL, Number.isNaN),
  celFunc("math.isInf", [DOUBLE], BOOL, (x) => Math.abs(x) === Number.POSITIVE_INFINITY),
  celFunc("math.isFinite", [DOUBLE], BOOL, Number.isFinite),
  celFunc("math.abs", [DOUBLE], DOUBLE, Math.abs),
  celFunc("math.abs", [INT], INT, (x) => {
    const positive = x < 0n ? -x : x;
    if (BigInt.asIntN(64, positive) !== positive) throw new Error("integer overflow");
    return positive;
  }),
  celFunc("math.abs", [UINT], UINT, (x) => x),
  celFunc("math.sign", [DOUBLE], DOUBLE, Math.sign),
  celFunc("math.sign", [INT], INT, (x) => (x > 0n ? 1n : x < 0n ? -1n : 0n)),
  celFunc("math.sign", [UINT], UINT, (x) => celUint(x.value > 0n ? 1n : 0n)),
  ...bits("math.bitAnd", (x, y) => x & y),
  ...bits("math.bitOr", (x, y) => x | y),
  ...bits("math.bitXor", (x, y) => x ^ y),
  celFunc("math.bitNot", [INT], INT, (x) => ~x),
  celFunc("math.bitNot", [UINT], UINT, (x) => celUint(BigInt.asUintN(64, ~x.value))),
  ...shifts("math.bitShiftLeft", (x, by) => x << by),
  ...shifts("math.bitShiftRight", (x, by) => x >> by),
];

function bits(name: string, apply: (x: bigint, y: bigint) => bigint): CelFunc[] {
  return [
    celFunc(name, [INT, INT], INT, apply),
    celFunc(name, [UINT, UINT], UINT, (x, y) => celUint(apply(x.value, y.value))),
  ];
}

/** Shifts of 64 bits, without regard to the sign. */
function shifts(name: string, apply: (x: bigint, by: bigint) => bigint): CelFunc[] {
  const shift = (x: bigint, by: bigint) => {
    if (by < 0n) throw new Error(`${name}() negative offset: ${by}`);
    return by > 63n ? 0n : BigInt.asUintN(64, apply(BigInt.asUintN(64, x), by));
  };
  return [
    celFunc(name, [INT, INT], INT, (x, by) => BigInt.asIntN(64, shift(x, by))),
    celFunc(name, [UINT, INT], UINT, (x, by) => celUint(shift(x.value, by))),
  ];
}

/** The first of the numbers that is better than all before. */
function best(value: CelValue, isBetter: (one: bigint | number, other: bigint | number) => boolean): Numeric {
  const numbers = isCelList(value) ? elementsOf(value) : [value];
  let found: Numeric | undefined;
  for (const number of numbers) {
    if (typeof number !== "bigint" && typeof number !== "number" && !isCelUint(number))
      throw new Error("math.greatest and math.least take numbers only");
    if (found === undefined || isBetter(plain(number), plain(found))) found = number;
  }
  if (found === undefined) throw new Error("math.greatest and math.least take at least one number");
  return found;
}

const plain = (number: Numeric) => (isCelUint(number) ? number.value : number);
