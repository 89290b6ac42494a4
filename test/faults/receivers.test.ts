import { setTimeout as wait } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { NameResolver } from "../../src/lib/egress/name-resolver.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { assignGroups } from "../../src/queue/retry-groups.ts";
import { type EngineParts, freshRun, pump, queueFor, startEngine } from "../delivery/engine-parts.ts";
import { type NameServer, startNameServer } from "../support/name-server.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { setTrap, type Trap } from "./trap.ts";

const DAY = 86_400_000;
const HEALTHY = "healthy.example";
const never = new AbortController().signal;
/** Unpacks to a thousand times its size, and stays below what is read of a response while it is packed. */
const GZIP_BOMB = gzipSync(Buffer.alloc(48 * 1024 * 1024));

type Status = number | null;
type Text = string | RegExp | null;

interface Case {
  title: string;
  /** 200 unless given. */
  reply?: Reply;
  certificate?: "other host" | "expired" | "unknown authority";
  /** The name in its URL; localhost unless given. */
  host?: string;
  /** Status and error of each attempt; the delivery is delivered if the last one has no error and 2xx. */
  attempts: [Status, Text][];
  /** What is kept of the first response. */
  responseStart?: Text;
  /** The requests that it gets; as many as there are attempts unless given. */
  requests?: number;
}

/** Answers a status with headers and a short text. */
const answers =
  (status: number, headers: Record<string, string> = {}): Reply =>
  (_request, response) => {
    response.writeHead(status, headers).end(`answered ${status}`);
    return undefined;
  };

/** Sends half of a long body and breaks the connection. */
const resetsAmid =
  (status: number): Reply =>
  (_request, response) => {
    response.writeHead(status, { "content-length": "100" }).write("half", () => response.socket?.destroy());
    return undefined;
  };

/** Redirects to where nobody may connect. */
const redirects = (status: number, to: (port: number) => string): Case => ({
  title: `redirects by ${status}`,
  reply: (request, response) => answers(status, { location: to(trap.port) })(request, response),
  attempts: four(status, /^redirects are not followed; /),
  responseStart: `answered ${status}`,
});

const four = (status: Status, error: Text): [Status, Text][] => Array(4).fill([status, error]);
const delivered: [Status, Text][] = [[200, null]];
/** Without what the name resolves to. */
const REFUSED = /^address refused: \w+\.example does not resolve to a public address(?!.*127)/;
let trap: Trap;

/** Gets no request. */
const fails = (title: string, error: Text, how: Partial<Case>): Case => ({
  ...{ title, attempts: four(null, error), requests: 0 },
  ...how,
});

/** What test/delivery proves of one request holds over all attempts, and is recorded. */
const CASES: Case[] = [
  { title: "is well", host: HEALTHY, attempts: delivered, responseStart: "answered 200" },
  {
    title: "answers 429 with Retry-After",
    reply: (request, response) =>
      request.attempt > 1 ? 200 : answers(429, { "retry-after": "1" })(request, response),
    attempts: [[429, "Retry-After: 1 s"], ...delivered],
    responseStart: "answered 429",
  },
  { title: "answers 200 and resets", reply: resetsAmid(200), attempts: delivered, responseStart: "half" },
  {
    title: "answers 503 and resets",
    reply: resetsAmid(503),
    attempts: four(503, null),
    responseStart: "half",
  },
  {
    title: "resets the connection without a response",
    reply: (_request, response) => void response.socket?.destroy(),
    attempts: four(null, /^connection (reset|closed)/),
  },
  { title: "never answers", reply: () => undefined, attempts: four(null, /^no response within 1 s; /) },
  {
    title: "sends headers and then nothing",
    reply: (_request, response) => void response.writeHead(200).flushHeaders(),
    attempts: delivered,
  },
  {
    title: "sends one byte a second",
    async reply(_request, response) {
      response.writeHead(200);
      while (!response.destroyed) {
        response.write("x");
        await wait(1_000);
      }
      return undefined;
    },
    attempts: delivered,
    responseStart: /^x+$/,
  },
  {
    title: "sends a gzip bomb",
    reply(_request, response) {
      response.writeHead(200, { "content-encoding": "gzip", "content-type": "text/plain" }).end(GZIP_BOMB);
      return undefined;
    },
    attempts: delivered,
    // Its first bytes are zeros, shown as replacement characters of three bytes each: 1 KiB is stored.
    responseStart: "\uFFFD".repeat(341),
  },
  redirects(307, (port) => `http://localhost:${port}/`),
  redirects(302, (port) => `https://127.0.0.2:${port}/`),
  fails("shows a certificate for another host", /certificate is for another host/, {
    certificate: "other host",
  }),
  fails("shows an expired certificate", /certificate has expired/, { certificate: "expired" }),
  fails("shows a certificate of an unknown authority", /unknown authority/, {
    certificate: "unknown authority",
  }),
  fails("has a name that does not resolve", /does not resolve/, { host: "none.example" }),
  // The lookup and the attempt have the same time, and begin in the same turn.
  fails(
    "has a name whose lookup hangs",
    /^DNS lookup of slow.example timed out after 1 s; check|DNS lookup included; /,
    {
      host: "slow.example",
    },
  ),
  fails("has a name that resolves to a private address", REFUSED, { host: "private.example" }),
  {
    title: "has a name that changes between two lookups",
    host: "rebinding.example",
    // Closed, so that the second attempt needs a connection and looks the name up again.
    reply: answers(503, { connection: "close" }),
    attempts: [[503, null], ...four(null, REFUSED).slice(1)],
    responseStart: "answered 503",
    requests: 1,
  },
];

let nameServer: NameServer;
let parts: EngineParts;
const receivers = new Map<string, Receiver>();
const traps: Trap[] = [];
let lookups = 0;

/** What the name server answers. */
const ADDRESSES: Record<string, () => string[]> = {
  [HEALTHY]: () => ["127.0.0.1"],
  "none.example": () => [],
  "private.example": () => ["127.0.0.2"],
  "rebinding.example": () => {
    lookups += 1;
    return [lookups === 1 ? "127.0.0.1" : "127.0.0.2"];
  },
};

async function start({ title, certificate, reply, host = "localhost" }: Case): Promise<string> {
  const authority =
    certificate === "unknown authority" ? await createLocalAuthority() : await trustedAuthority();
  const past = { notBefore: new Date(Date.now() - 3 * DAY), notAfter: new Date(Date.now() - DAY) };
  const issued = await authority.issue(
    [certificate === "other host" ? "other.example" : host],
    certificate === "expired" ? past : {},
  );
  const receiver = await startReceiver(issued, reply);
  receivers.set(title, receiver);
  if (/private|rebinding/.test(host)) traps.push(await setTrap("127.0.0.2", receiver.port));
  return `https://${host}:${receiver.port}`;
}

beforeAll(async () => {
  nameServer = await startNameServer(({ name, type }) => {
    const addresses = ADDRESSES[name];
    return addresses && (type === "A" ? { addresses: addresses(), ttl: 0 } : {});
  });
  parts = await startEngine(
    {
      RETRY_INITIAL_DELAY: "200ms",
      RETRY_BACKOFF_COEFFICIENT: "1.5",
      DELIVERY_TIMEOUT: "1s",
      // Not the whole of 127.0.0.0/8: the traps on 127.0.0.2 can be dialled and must not be.
      DELIVERY_ALLOWED_NETWORKS: "127.0.0.1/32",
    },
    { resolver: new NameResolver({ servers: [nameServer.address], timeoutMs: 1_000 }) },
  );
  trap = await setTrap("0.0.0.0");
  traps.push(trap);
  await parts.db("processes").insert({ process: 1, revision: 1n, live: 1 }).onConflict().ignore();
  for (const each of CASES) await queueFor(parts, await start(each), { webhooks: 1, events: 1 });
  const runId = await freshRun(parts.db);
  await pump(parts.engine, runId);
  const groups = () =>
    rows<{ n: number }>(
      parts.db,
      "select distinct group_number as n from run_groups where webhook_id in (select webhook_id from retries)",
    );
  const pass = { horizonMs: 10_000, forMs: 60_000 };
  await assignGroups(parts.db, runId);
  while ((await groups()).length > 0)
    await Promise.all(
      (await groups()).map(({ n }) => parts.engine.retries.run({ runId, group: n }, pass, never)),
    );
});
afterAll(async () => {
  await parts?.end();
  await Promise.all([...receivers.values(), ...traps, nameServer].map((each) => each?.close()));
});

/** The attempts of a delivery to a case's receiver. */
const attemptsOf = (title: string) =>
  rows<{ state: string; number: number; status: Status; error: Text; response_start: Text; ended: Date }>(
    parts.db,
    `select d.state, a.number, a.status, a.error, a.response_start,
        a.started + a.duration_ms * interval '1 ms' as ended
      from all_deliveries d join all_attempts a on a.delivery_id = d.id join webhooks w on w.id = d.webhook_id
      where w.url like '%:' || :port || '/%' order by a.number`,
    { port: String(receivers.get(title)?.port) },
  );
const matching = (expected: Text) =>
  expected instanceof RegExp ? expect.stringMatching(expected) : expected;

test.each(CASES)("a receiver that $title has the outcome and the record that it should", async (expected) => {
  const { title, responseStart = null, requests = expected.attempts.length } = expected;
  const attempts = await attemptsOf(title);
  expect(attempts.map(({ number, status, error }) => [number, status, error])).toEqual(
    expected.attempts.map(([status, error], index) => [index + 1, status, matching(error)]),
  );
  expect(attempts[0]).toMatchObject({
    state: expected.attempts.at(-1)?.[0] === 200 ? "delivered" : "failed",
    response_start: matching(responseStart),
  });
  expect(receivers.get(title)?.received).toHaveLength(requests);
});

test("only the checked address is dialled", () => {
  expect(traps.map((each) => each.connections())).toEqual(traps.map(() => 0));
  // Once a connection: a second lookup for the same connection could lead elsewhere.
  expect(lookups).toBe(4);
});

test("receivers and names that hang hold up nobody else's deliveries", async () => {
  const [healthy] = await attemptsOf("is well");
  for (const title of ["never answers", "has a name whose lookup hangs"])
    expect(healthy?.ended.getTime()).toBeLessThan((await attemptsOf(title))[0]?.ended.getTime() as number);
});
