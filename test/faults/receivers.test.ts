import { afterAll, beforeAll, expect, test } from "vitest";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { assignGroups } from "../../src/db/queue/retry-groups.ts";
import { NameResolver } from "../../src/delivery/http/name-resolver.ts";
import { type EngineParts, freshRun, pump, queueFor, startEngine } from "../delivery/engine-parts.ts";
import { type NameServer, startNameServer } from "../support/name-server.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { answers, byteASecond, GZIP_BOMB, gzipBomb, recovers, resets, resetsAmid } from "./misbehaviour.ts";
import { setTrap, type Trap } from "./trap.ts";

const DAY = 86_400_000;
const HEALTHY = "healthy.example";
const never = new AbortController().signal;

type Status = number | null;
type Text = string | RegExp | null;

interface Case {
  title: string;
  /** 200 unless given. */
  reply?: Reply;
  /** Whether its certificate is. */
  isExpired?: boolean;
  /** The name in its URL; localhost unless given. */
  host?: string;
  /** Status and error of each attempt; the delivery is delivered if the last one has no error and 2xx. */
  attempts: [Status, Text][];
  /** What is kept of the first response. */
  responseStart?: Text;
  /** The requests that it gets; as many as there are attempts unless given. */
  requests?: number;
}

const four = (status: Status, error: Text): [Status, Text][] => Array(4).fill([status, error]);
const LATE = /^no response within 1 s$/;
/** Without what the name resolves to. */
const REFUSED = /^address refused: \w+\.example does not resolve to a public address(?!.*127)/;
let trap: Trap;

/** What test/delivery proves of one request holds over all attempts, and is recorded. */
const CASES: Case[] = [
  { title: "is well", host: HEALTHY, attempts: [[200, null]], responseStart: "answered 200" },
  {
    title: "answers 429 with Retry-After as a date",
    reply: recovers(429, () => ({ "retry-after": new Date(Date.now() + 3_000).toUTCString() })),
    // A date has whole seconds, and the answer may be long on its way.
    attempts: [
      [429, /^Retry-After: [123] s$/],
      [200, null],
    ],
    responseStart: "answered 429",
  },
  {
    title: "answers 503 and resets amid the response",
    reply: resetsAmid(503),
    attempts: four(503, null),
    responseStart: "half",
  },
  {
    title: "resets the connection without a response",
    reply: resets,
    attempts: four(null, /^connection (reset|closed)/),
  },
  { title: "never answers", reply: () => undefined, attempts: four(null, LATE) },
  { title: "sends one byte a second", reply: byteASecond, attempts: [[200, null]], responseStart: /^x+$/ },
  {
    title: "sends a gzip bomb",
    reply: gzipBomb,
    attempts: [[200, null]],
    // As it came: unpacked it would be nothing but zeros, shown as replacement characters.
    responseStart: GZIP_BOMB.subarray(0, 1_024).toString("utf8").replaceAll("\0", "\uFFFD"),
  },
  {
    title: "redirects to another address",
    reply: (request, response) =>
      answers(307, { location: `https://127.0.0.2:${trap.port}/` })(request, response),
    attempts: four(307, /^redirects are not followed$/),
    responseStart: "answered 307",
  },
  {
    title: "shows an expired certificate",
    isExpired: true,
    attempts: four(null, /certificate has expired/),
    requests: 0,
  },
  {
    title: "has a name whose lookup hangs",
    host: "slow.example",
    attempts: four(null, /^DNS lookup of slow.example timed out after 1 s$/),
    requests: 0,
  },
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
  "rebinding.example": () => {
    lookups += 1;
    return [lookups === 1 ? "127.0.0.1" : "127.0.0.2"];
  },
};

async function start({ title, isExpired, reply, host = "localhost" }: Case): Promise<string> {
  const past = { notBefore: new Date(Date.now() - 3 * DAY), notAfter: new Date(Date.now() - DAY) };
  const authority = await trustedAuthority();
  const receiver = await startReceiver(await authority.issue([host], isExpired ? past : {}), reply);
  receivers.set(title, receiver);
  if (host === "rebinding.example") traps.push(await setTrap("127.0.0.2", receiver.port));
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
  const isDelivered = expected.attempts.at(-1)?.[0] === 200;
  expect(attempts[0]).toMatchObject({
    state: isDelivered ? "delivered" : "failed",
    response_start: matching(responseStart),
  });
  expect(receivers.get(title)?.received).toHaveLength(requests);
});

test("no address is dialled but the one that was checked", () => {
  expect(traps.map((each) => each.connections())).toEqual(traps.map(() => 0));
  // Once a connection: a second lookup for the same connection could lead elsewhere.
  expect(lookups).toBe(4);
});

test("receivers and names that hang hold up nobody else's deliveries", async () => {
  const [healthy] = await attemptsOf("is well");
  for (const title of ["never answers", "has a name whose lookup hangs"])
    expect(healthy?.ended.getTime()).toBeLessThan((await attemptsOf(title))[0]?.ended.getTime() as number);
});
