/** What each node imports. */
export type Graph = ReadonlyMap<string, ReadonlySet<string>>;

/**
 * The circles of a graph: groups of nodes of which each imports all others, directly or by way of others. A group comes with its
 * shortest circle, such as `a → b → a`.
 */
export function circles(graph: Graph): { nodes: string[]; shortest: string }[] {
  const reached = new Map([...graph.keys()].map((node) => [node, reachable(graph, node)]));
  const left = new Set([...graph.keys()].filter((node) => reached.get(node)?.has(node)));
  const found = [];
  for (const node of left) {
    const nodes = [...left].filter((other) => reached.get(node)?.has(other) && reached.get(other)?.has(node));
    for (const each of nodes) left.delete(each);
    const ways = nodes.map((each) => reached.get(each)?.get(each) as string[]);
    const [shortest = []] = ways.sort((one, another) => one.length - another.length);
    found.push({ nodes: nodes.sort(), shortest: shortest.join(" → ") });
  }
  return found;
}

/** All that a node imports, directly or by way of others, with the shortest way to each. */
function reachable(graph: Graph, start: string): Map<string, string[]> {
  const ways = new Map<string, string[]>();
  const open = [[start]];
  for (const way of open) {
    for (const next of graph.get(way.at(-1) as string) ?? []) {
      if (ways.has(next)) continue;
      const longer = [...way, next];
      ways.set(next, longer);
      open.push(longer);
    }
  }
  return ways;
}
