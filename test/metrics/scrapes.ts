/** One series of a scrape, with its value. */
export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** The text that a listener of metrics answers. */
export async function scrapeText(url: string): Promise<string> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response.text();
}

/** The series of a listener of metrics, which answers the text format of Prometheus. */
export async function scrape(url: string): Promise<Sample[]> {
  const lines = (await scrapeText(url)).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return lines.map((line) => {
    const [, name = "", inner = "", value = ""] = /^([\w:]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    const labels = [...inner.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
    return { name, labels: Object.fromEntries(labels), value: Number(value) };
  });
}

/** The sum of the series of a name that have the labels. */
export function sum(samples: readonly Sample[], name: string, labels: Record<string, string> = {}): number {
  return samples
    .filter((sample) => sample.name === name)
    .filter((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
    .reduce((total, { value }) => total + value, 0);
}
