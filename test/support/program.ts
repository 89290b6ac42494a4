import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { PATIENCE_MS } from "./patience.ts";

/** The folder of the project. */
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** A program in a process of its own. */
export interface Program {
  process: ChildProcess;
  pid: number;
  /** What it has printed so far, without colours. */
  printed(): string;
  /**
   * Resolves once it has printed what matches.
   *
   * @throws Error with what it printed, if it ends before
   */
  until(says: RegExp): Promise<RegExpExecArray>;
  /** Its exit code, once it has ended and its output too; null if a signal ended it. */
  ended: Promise<number | null>;
  /** Sends the signal, and waits for the end of the process itself. */
  end(signal: NodeJS.Signals): Promise<number | null>;
}

/**
 * Starts a program in the project's folder.
 *
 * @param environment variables over this process's own
 */
export function startProgram(
  [file = "", ...args]: readonly string[],
  { environment = {}, cwd = ROOT }: { environment?: NodeJS.ProcessEnv; cwd?: string } = {},
): Program {
  const child = spawn(file, args, {
    cwd,
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let printed = "";
  let isOver = false;
  const output = new EventEmitter();
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      if (process.env.TEST_LOG_LEVEL) console.log(`[${child.pid}] ${chunk.trimEnd()}`);
      printed += stripVTControlCharacters(chunk);
      output.emit("more");
    });
  const ended = once(child, "close")
    .then(([code]) => code as number | null)
    .finally(() => {
      isOver = true;
      output.emit("more");
    });
  // Told by those who wait for it.
  ended.catch(() => {});
  return {
    process: child,
    pid: child.pid as number,
    printed: () => printed,
    ended,
    async until(says) {
      const signal = AbortSignal.timeout(PATIENCE_MS);
      for (;;) {
        const found = says.exec(printed);
        if (found) return found;
        const end = isOver ? `ended with ${await ended}` : signal.aborted ? "still runs" : undefined;
        if (end) throw new Error(`${file} ${args.join(" ")} ${end} and has not printed ${says}:\n${printed}`);
        await once(output, "more", { signal }).catch(() => {});
      }
    },
    async end(signal) {
      if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
      const exited = once(child, "exit");
      child.kill(signal);
      return (await exited)[0];
    },
  };
}

/** The command that runs a file of the project. */
export const node = (file: string, ...args: string[]): string[] => [
  process.execPath,
  "--disable-warning=ExperimentalWarning",
  file,
  ...args,
];
