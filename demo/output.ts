import { styleText } from "node:util";
import type { ReceivedRequest } from "./receiver.ts";

/** Prints a heading. */
export function heading(text: string): void {
  console.log(`\n${styleText("bold", text)}`);
}

/** Prints an indented line. */
export function line(text: string): void {
  console.log(`  ${text}`);
}

/**
 * Prints a request that a receiver got: the complete request for the first attempt of a delivery, then one line per
 * attempt.
 */
export function showArrival(receiver: string, request: ReceivedRequest, status: number): void {
  const answer = styleText(status < 300 ? "green" : "red", `answers ${status}`);
  const id = String(request.headers["x-service-webhook-id"]);
  line(
    `${time(request.at)} ${styleText("cyan", receiver)} gets delivery ${id}, attempt ${request.attempt}, ${answer}`,
  );
  if (request.attempt > 1) return;
  line(`    POST ${request.path}`);
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    const name = request.rawHeaders[i] as string;
    if (/^(host|connection|content-length|user-agent|accept-encoding)$/i.test(name)) continue;
    line(`    ${styleText("dim", `${name}:`)} ${request.rawHeaders[i + 1]}`);
  }
  line(`    ${request.body}`);
}

/** Prints rows as a table with fitting column widths. */
export function table(rows: Record<string, string>[]): void {
  const names = Object.keys(rows[0] ?? {});
  const widths = names.map((name) => Math.max(name.length, ...rows.map((row) => (row[name] ?? "").length)));
  const print = (cells: string[]) =>
    line(
      cells
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join("  ")
        .trimEnd(),
    );
  print(names);
  print(widths.map((width) => "─".repeat(width)));
  for (const row of rows) print(names.map((name) => row[name] ?? ""));
}

function time(at: Date): string {
  return styleText("dim", at.toISOString().slice(11, 19));
}
