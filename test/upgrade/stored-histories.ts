import { glob, mkdir, readFile, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { historyFromJSON, historyToJSON } from "@temporalio/common/lib/proto-utils.js";
import { Worker } from "@temporalio/worker";
import packageJson from "../../package.json" with { type: "json" };
import { assertShape, type History } from "./shapes.ts";

/** Holds a folder for each release, with a file for each shape. */
export const HISTORIES = fileURLToPath(new URL("histories", import.meta.url));

/** The histories of the coming release. */
export const RECORDINGS = path.join(HISTORIES, packageJson.version);
/** True under `npm run record-histories`. */
export const RECORDING = process.env.MODE === "record-histories";
/** The shapes of the histories that this process has stored. */
export const recorded: string[] = [];

/** Holds a history to its shape. Stores it too under `npm run record-histories`. */
export async function holdToShape(shape: string, history: History): Promise<void> {
  assertShape(shape, history);
  if (!RECORDING) return;
  await storeHistory(shape, history);
  recorded.push(shape);
}

/** A history in the repository. */
export interface StoredHistory {
  release: string;
  shape: string;
  history: History;
}

/** The stored histories of every release, in the order of their paths. */
export async function storedHistories(): Promise<StoredHistory[]> {
  const files: string[] = [];
  for await (const file of glob("*/*.json", { cwd: HISTORIES })) files.push(file);
  return Promise.all(
    files.sort().map(async (file) => ({
      release: path.dirname(file),
      shape: path.basename(file, ".json"),
      history: historyFromJSON(JSON.parse(await readFile(path.join(HISTORIES, file), "utf8"))),
    })),
  );
}

/** Replays the histories and answers those that the workflows do not fit, by their paths, with the reason. */
export async function misfits(
  code: string,
  histories: readonly StoredHistory[],
): Promise<Record<string, string>> {
  const replayed = Worker.runReplayHistories(
    { workflowBundle: { code } },
    histories.map(({ release, shape, history }) => ({ workflowId: `${release}/${shape}`, history })),
  );
  const found: Record<string, string> = {};
  let count = 0;
  for await (const { workflowId, error } of replayed) {
    count += 1;
    if (error) found[workflowId] = `${error.name}: ${error.message}`;
  }
  if (count === 0 || count !== histories.length)
    throw new Error(`${count} of ${histories.length} histories were replayed`);
  return found;
}

/** Writes a history, an event a line, without what tells about the machine: its name, process ids, stack traces. */
async function storeHistory(shape: string, history: History): Promise<void> {
  const { events } = scrub(JSON.parse(historyToJSON(history)), renamer()) as { events: unknown[] };
  await mkdir(RECORDINGS, { recursive: true });
  const lines = events.map((event) => JSON.stringify(event));
  await writeFile(path.join(RECORDINGS, `${shape}.json`), `{"events":[\n${lines.join(",\n")}\n]}\n`);
}

/** Texts of a history, those in payloads included. */
export function textsOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (value instanceof Uint8Array) return [Buffer.from(value).toString()];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsOf) : [];
}

/** Renames `123@host` and `host/123`, by which Temporal's SDK and this service name a process: 1 is the first one named. */
function renamer(): (text: string) => string {
  const host = hostname().replaceAll(".", "\\.");
  const pids: string[] = [];
  const numberOf = (pid: string) => (pids.includes(pid) ? pids.indexOf(pid) + 1 : pids.push(pid));
  return (text) =>
    text
      .replace(new RegExp(`(\\d+)@${host}`, "g"), (_, pid: string) => `${numberOf(pid)}@worker`)
      .replace(new RegExp(`${host}/(\\d+)`, "g"), (_, pid: string) => `worker/${numberOf(pid)}`);
}

function scrub(value: unknown, rename: (text: string) => string): unknown {
  if (typeof value === "string") return rename(value);
  if (Array.isArray(value)) return value.map((item) => scrub(item, rename));
  if (typeof value !== "object" || value === null) return value;
  if ("metadata" in value && "data" in value && typeof value.data === "string") {
    const data = rename(Buffer.from(value.data, "base64").toString());
    return { ...value, data: Buffer.from(data).toString("base64") };
  }
  const kept = Object.entries(value).filter(([name]) => name !== "stackTrace");
  return Object.fromEntries(kept.map(([name, of]) => [name, scrub(of, rename)]));
}
