import { createHmac } from "node:crypto";
import { Pool } from "undici";
import { serveCalls } from "../parts/child.ts";

/** What the bare loop's process can be asked. */
export type LimitMethods = {
  /** POSTs `body` so many times, so many at once, to the origins in turn, with more headers perhaps; answers seconds. */
  run(argument: {
    origins: string[];
    body: string;
    requests: number;
    concurrency: number;
    headers: string[];
    /** Signs each request, as the service does. */
    signs: boolean;
  }): Promise<number>;
};

/** The least that undici can be asked to do: nothing is read of an answer but its status. */
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
    let left = requests;
    const started = performance.now();
    await Promise.all(
      Array.from({ length: concurrency }, async () => {
        while (left-- > 0) {
          const pool = pools[left % pools.length] as Pool;
          await post(pool, body, signs ? [...all, "signature", signature(left, body)] : all);
        }
      }),
    );
    const seconds = (performance.now() - started) / 1_000;
    await Promise.all(pools.map((pool) => pool.destroy()));
    return seconds;
  },
} satisfies LimitMethods);
