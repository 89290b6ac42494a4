/** The value of a key. Makes a missing one; beyond the maximum number of values, the oldest one is evicted. */
export function getOrMake<Value>(
  values: Map<string, Value>,
  key: string,
  max: number,
  make: () => Value,
): Value {
  const known = values.get(key);
  if (known !== undefined) return known;
  const made = make();
  values.set(key, made);
  if (values.size > max) values.delete(values.keys().next().value as string);
  return made;
}
