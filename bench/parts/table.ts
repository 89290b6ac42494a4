import type { Result } from "./results.ts";

const number = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Formats the results as a table. */
export function toTable(results: readonly Result[]): string {
  const header = ["name", "count", "unit", "min", "median", "max", "target", "reached"];
  const rows = results.map((result) => [
    result.name,
    whole.format(result.count),
    result.unit,
    figure(result.min),
    figure(result.median),
    figure(result.max),
    result.target ?? "",
    result.reached === undefined ? "" : result.reached ? "yes" : "NO",
  ]);
  const widths = header.map((name, i) => Math.max(name.length, ...rows.map((row) => row[i]?.length ?? 0)));
  const lines = [header, widths.map((width) => "─".repeat(width)), ...rows].map((row) =>
    row
      .map((cell, i) =>
        NUMBERS.has(header[i] ?? "") ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0),
      )
      .join("  ")
      .trimEnd(),
  );
  const notes = results.flatMap(({ name, notes = [] }) =>
    notes.length > 0 ? [`${name}: ${notes.join("; ")}`] : [],
  );
  return [...lines, ...(notes.length > 0 ? ["", ...notes] : [])].join("\n");
}

const NUMBERS = new Set(["count", "min", "median", "max"]);

function figure(value: number): string {
  return Math.abs(value) >= 1_000 ? whole.format(value) : number.format(value);
}
