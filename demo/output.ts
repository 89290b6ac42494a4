import { stripVTControlCharacters, styleText } from "node:util";
import type { ReceivedRequest } from "./receiver.ts";

/** Prints a heading. */
export function heading(text: string): void {
  console.log(`\n${styleText(["bold", "magenta"], text)}`);
}

/** The last characters of an id, which differ most between ids of the same second: `…949abd`. */
export function shortId(id: string): string {
  return `…${id.slice(-6)}`;
}

/** Shows what the service does while it starts: one line that changes in a terminal, only the long steps elsewhere. */
export function showStarting(text: string): void {
  if (process.stdout.isTTY) process.stdout.write(`\r\u001b[K  ${styleText("dim", text)}`);
  else if (/^(building|downloading|could not)/.test(text)) line(text);
}

/** Ends the line of `showStarting`. */
export function showStarted(text: string): void {
  if (process.stdout.isTTY) process.stdout.write("\r\u001b[K");
  line(text);
}

/** Prints an indented line. */
export function line(text: string): void {
  console.log(`  ${text}`);
}

/**
 * Prints one request as its receiver got it, on one line.
 *
 * @param whole also prints the headers and the body
 */
export function showArrival(
  receiver: string,
  request: ReceivedRequest,
  status: number,
  whole: boolean,
): void {
  const answer = styleText(status < 300 ? "green" : "red", `answers ${status}`);
  const id = styleText("dim", shortId(String(request.headers["x-service-webhook-id"])));
  const event = request.headers["x-service-webhook-process"] ?? "";
  line(
    `${time(request.at)} ${styleText("cyan", receiver)} gets ${event} ${id}, attempt ${request.attempt}, ${answer}`,
  );
  if (!whole) return;
  line(`    POST ${request.path}`);
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    const name = request.rawHeaders[i] as string;
    if (/^(host|connection|content-length|user-agent|accept|accept-encoding)$/i.test(name)) continue;
    line(`    ${styleText("dim", `${name}:`)} ${request.rawHeaders[i + 1]}`);
  }
  line(`    ${request.body}`);
}

/** Prints rows as a table with fitting column widths. */
export function table(rows: Record<string, string>[]): void {
  const names = Object.keys(rows[0] ?? {});
  const width = (text: string) => stripVTControlCharacters(text).length;
  const widths = names.map((name) => Math.max(name.length, ...rows.map((row) => width(row[name] ?? ""))));
  const print = (cells: string[]) =>
    line(
      cells
        .map((cell, i) => cell + " ".repeat((widths[i] ?? 0) - width(cell)))
        .join("  ")
        .trimEnd(),
    );
  print(names);
  print(widths.map((count) => "─".repeat(count)));
  for (const row of rows) print(names.map((name) => row[name] ?? ""));
}

function time(at: Date): string {
  return styleText("dim", at.toISOString().slice(11, 19));
}
