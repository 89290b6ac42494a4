import { createHmac } from "node:crypto";
import { Pool } from "undici";
import { serveCalls } from "../parts/child.ts";

/** The calls accepted by the bare loop's process. */
export type LimitMethods = {
  /**
   * Sends `body` in POST requests, a number of them concurrently, to the origins in turn, optionally with more
   * headers. Returns seconds, without those that open the connections.
   */
  run(argument: {
    origins: string[];
    body: string;
    requests: number;
    concurrency: number;
    headers: string[];
    /** Whether to sign each request as the service does. */
    signs: boolean;
  }): Promise<number>;
};

/** A minimal undici request: only the status of the response is read. */
function post(pool: Pool, body: string, headers: string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    let status = 0;
    pool.dispatch(
      { path: "/hooks", method: "POST", headers, body },
      {
        onRequestStart() {},
        onResponseStart(_controller, code) {
          status = code;
        },
        onResponseData() {},
        onResponseEnd: () =>
          status === 200 ? resolve() : reject(new Error(`the receiver answered ${status}`)),
        onResponseError: (_controller, error) => reject(error),
      },
    );
  });
}

function signature(n: number, body: string): string {
  return createHmac("sha256", "a secret of thirty-two characters")
    .update(`${n}.${Date.now()}.${body}`)
    .digest("base64");
}

serveCalls({
  async run({ origins, body, requests, concurrency, headers, signs }) {
    const all = ["content-type", "application/json; charset=utf-8", ...headers];
    const options = { connections: concurrency, pipelining: 1, allowH2: false };
    const pools = origins.map((origin) => new Pool(origin, options));
    const send = async (count: number) => {
      let left = count;
      await Promise.all(
        Array.from({ length: concurrency }, async () => {
          while (left-- > 0) {
            const pool = pools[left % pools.length] as Pool;
            await post(pool, body, signs ? [...all, "signature", signature(left, body)] : all);
          }
        }),
      );
    };
    // Opens the connections: the service has those of its warm-up too.
    await send(Math.min(requests, 2 * concurrency));
    const started = performance.now();
    await send(requests);
    const seconds = (performance.now() - started) / 1_000;
    await Promise.all(pools.map((pool) => pool.destroy()));
    return seconds;
  },
} satisfies LimitMethods);
