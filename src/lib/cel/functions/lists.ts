import {
  type CelFunc,
  type CelList,
  CelScalar,
  type CelValue,
  celFunc,
  celMethod,
  isCelList,
  isCelMap,
  listType,
  mapType,
} from "@bufbuild/cel";
import { someOf } from "./optionals.ts";
import { assertElements, elementsOf, orderOf, ValueSet } from "./values.ts";

const { BOOL, DYN, INT } = CelScalar;
const LIST = listType(DYN);
const MAP = mapType(DYN, DYN);

/** CEL's extensions for lists, version 3, and sets. `sortBy` is a macro. */
export const listFunctions: CelFunc[] = [
  celFunc("lists.range", [INT], listType(INT), (end) => {
    assertElements(end);
    return Array.from({ length: Math.max(0, Number(end)) }, (_, n) => BigInt(n));
  }),
  celMethod("slice", LIST, [INT, INT], LIST, function (start, end) {
    if (start < 0n || start > end || end > this.size)
      throw new Error(`there is no slice from ${start} to ${end} of a list with ${this.size} elements`);
    return elementsOf(this).slice(Number(start), Number(end));
  }),
  celMethod("flatten", LIST, [], LIST, function () {
    return flatten(this, 1n);
  }),
  celMethod("flatten", LIST, [INT], LIST, function (levels) {
    if (levels < 0n) throw new Error("flatten takes no negative number of levels");
    return flatten(this, levels);
  }),
  celMethod("distinct", LIST, [], LIST, function () {
    const known = new ValueSet();
    return elementsOf(this).filter((value) => {
      if (known.has(value)) return false;
      known.add(value);
      return true;
    });
  }),
  celMethod("reverse", LIST, [], LIST, function () {
    return elementsOf(this).reverse();
  }),
  celMethod("sort", LIST, [], LIST, function () {
    const values = elementsOf(this);
    return sortBy(values, values);
  }),
  celFunc("@sortBy", [LIST, LIST], LIST, (values, keys) => sortBy(elementsOf(values), elementsOf(keys))),
  celMethod("first", LIST, [], LIST, function () {
    return someOf(this.get(0));
  }),
  celMethod("last", LIST, [], LIST, function () {
    return someOf(this.get(this.size - 1));
  }),
  celFunc("sets.contains", [LIST, LIST], BOOL, contains),
  celFunc(
    "sets.equivalent",
    [LIST, LIST],
    BOOL,
    (one, other) => contains(one, other) && contains(other, one),
  ),
  celFunc("sets.intersects", [LIST, LIST], BOOL, (one, other) => {
    const values = new ValueSet(elementsOf(one));
    return elementsOf(other).some((value) => values.has(value));
  }),
  // The indexes of a list, and the keys of a map, for loops with two variables.
  celFunc("@keys", [LIST], LIST, (list) => {
    assertElements(list.size);
    return Array.from({ length: list.size }, (_, n) => BigInt(n));
  }),
  celFunc("@keys", [MAP], LIST, (map) => [...map.keys()]),
  celFunc("@merge", [LIST], MAP, (maps) => {
    const keys = new ValueSet();
    const merged = new Map();
    for (const map of elementsOf(maps))
      for (const [key, value] of isCelMap(map) ? map : []) {
        if (keys.has(key)) throw new Error(`there are two values for the key ${orderOf(key)}`);
        keys.add(key);
        merged.set(key, value);
      }
    return merged;
  }),
];

function contains(list: CelList, others: CelList): boolean {
  const values = new ValueSet(elementsOf(list));
  return elementsOf(others).every((value) => values.has(value));
}

function flatten(list: CelList, levels: bigint): CelValue[] {
  const flat: CelValue[] = [];
  const add = (value: CelValue, left: bigint): void => {
    if (left < 0n || !isCelList(value)) {
      assertElements(flat.length + 1);
      flat.push(value);
      return;
    }
    for (const each of value) add(each, left - 1n);
  };
  add(list, levels);
  return flat;
}

function sortBy(values: readonly CelValue[], keys: readonly CelValue[]): CelValue[] {
  const pairs = values.map((value, n) => ({ value, order: orderOf(keys[n] as CelValue), key: keys[n] }));
  const [first] = pairs;
  if (pairs.some(({ order }) => typeof order !== typeof first?.order))
    throw new Error("only values of one type can be sorted");
  return pairs
    .sort((one, other) => (one.order < other.order ? -1 : one.order > other.order ? 1 : 0))
    .map(({ value }) => value);
}
