/** A number of things in words: `1 delivery`, `1,200 deliveries`. */
export function countOf(count: number, one: string, many: string): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}
