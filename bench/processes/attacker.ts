import { Agent, type ClientRequest, request as send } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import { serveCalls } from "../parts/child.ts";

/** Calls of a method. */
export interface Attack {
  url: string;
  /** GET sends no request. */
  httpMethod: "GET" | "POST";
  /** As in `/webhook.v1.WebhookService/ListWebhooks`. */
  path: string;
  streams: boolean;
  /** The keys, used in turn. */
  keys: readonly string[];
  concurrency: number;
  seconds: number;
}

/** The calls accepted by the attacker. */
export type AttackerMethods = {
  /** Takes the requests of the next attack, as JSON, which it sends in turn. */
  load(requests: readonly string[]): void;
  /** Makes calls for some seconds. Most responses are read, some never are, and some calls are closed at once. */
  attack(argument: Attack): Promise<void>;
};

/** Of this many calls, one is closed at once, and the response of another one is never read. */
const ODD_CALLS = 5;
const CLOSE_AFTER_MS = 5;

let bodies: readonly Buffer[] = [];

serveCalls({
  load(requests) {
    bodies = requests.map((request) => Buffer.from(request));
  },
  async attack({ url, httpMethod, path, streams, keys, concurrency, seconds }) {
    const agent = new Agent({ keepAlive: true, maxSockets: concurrency });
    const open = new Set<ClientRequest>();
    const end = Date.now() + 1_000 * seconds;
    let nth = 0;
    const call = () => {
      const n = nth++;
      const body = bodies[n % bodies.length] as Buffer;
      const head = Buffer.alloc(streams ? 5 : 0);
      if (streams) head.writeUInt32BE(body.length, 1);
      return new Promise<void>((resolve) => {
        const sent = send(new URL(path, url), {
          agent,
          method: httpMethod,
          headers: {
            "content-type": streams ? "application/connect+json" : "application/json",
            "connect-protocol-version": "1",
            "x-service-key": keys[n % keys.length],
          },
        });
        open.add(sent);
        const ended = () => {
          open.delete(sent);
          resolve();
        };
        sent.on("response", (response) => {
          // Never read until the end of the attack.
          if (n % ODD_CALLS !== 1) response.resume();
          response.on("close", ended);
        });
        sent.on("error", ended);
        sent.on("close", ended);
        if (httpMethod === "GET") sent.end();
        else sent.end(Buffer.concat([head, body]));
        if (n % ODD_CALLS === 0) setTimeout(() => sent.destroy(), CLOSE_AFTER_MS);
      });
    };
    const callers = Array.from({ length: concurrency }, async () => {
      while (Date.now() < end) {
        await call();
        // Refusals come at once.
        await wait(1);
      }
    });
    await wait(1_000 * seconds);
    for (const each of open) each.destroy();
    await Promise.all(callers);
    agent.destroy();
  },
} satisfies AttackerMethods);
