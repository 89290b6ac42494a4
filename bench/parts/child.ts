import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Bench } from "./bench.ts";

/** The calls that a child process accepts: one argument and one result, both structured-cloneable. */
// biome-ignore lint/suspicious/noExplicitAny: a bound that lets every method's own argument type through
export type Methods = Record<string, (argument: any) => unknown>;

/** A child process of the bench, such as the receivers. */
export interface BenchChild<M extends Methods> extends AsyncDisposable {
  pid: number;
  call<Name extends keyof M & string>(
    name: Name,
    argument: Parameters<M[Name]>[0],
  ): Promise<Awaited<ReturnType<M[Name]>>>;
}

/** What child processes need of a bench. */
export type ChildBench = Pick<Bench, "authorityFile" | "stopping">;

interface Call {
  id: number;
  name: string;
  argument: unknown;
}

interface Answer {
  id: number;
  result?: unknown;
  error?: string;
}

/**
 * Starts a file of `bench/processes/`, which calls `serveCalls`. The process trusts the receivers, and ends when this
 * process ends for any reason.
 *
 * @param node the program that runs it. Defaults to this process's
 */
export function startChild<M extends Methods>(
  bench: ChildBench,
  file: string,
  node = process.execPath,
): BenchChild<M> {
  const child = fork(fileURLToPath(new URL(`../processes/${file}`, import.meta.url)), {
    execPath: node,
    env: { ...process.env, NODE_EXTRA_CA_CERTS: bench.authorityFile },
    // Ends long calls with the run.
    signal: bench.stopping,
    killSignal: "SIGKILL",
    serialization: "advanced",
  });
  const waiting = new Map<number, { resolve(value: never): void; reject(error: Error): void }>();
  let calls = 0;
  child.on("message", ({ id, result, error }: Answer) => {
    const call = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) call?.resolve(result as never);
    else call?.reject(new Error(`${file}: ${error}`));
  });
  // An aborted signal also emits an error; the exit is handled below.
  child.on("error", () => {});
  child.on("exit", (code, signal) => {
    for (const call of waiting.values()) call.reject(new Error(`${file} ended (${signal ?? code})`));
    waiting.clear();
  });
  return {
    pid: child.pid as number,
    call(name, argument) {
      return new Promise((resolve, reject) => {
        if (!child.connected) return reject(new Error(`${file} has ended`));
        const id = calls++;
        waiting.set(id, { resolve, reject });
        child.send({ id, name, argument } satisfies Call);
      });
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    },
  };
}

/** The child's side: serves calls until the parent disconnects. */
export function serveCalls(methods: Methods): void {
  process.on("message", async ({ id, name, argument }: Call) => {
    try {
      const result = await methods[name]?.(argument);
      process.send?.({ id, result } satisfies Answer);
    } catch (error) {
      process.send?.({ id, error: error instanceof Error ? error.message : String(error) } satisfies Answer);
    }
  });
  // Ctrl-C reaches the whole process group; the parent stops its children in order.
  process.on("SIGINT", () => {});
  process.on("disconnect", () => process.exit(0));
}
