import { randomUUID } from "node:crypto";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Client, createClient } from "@connectrpc/connect";
import { DeliveryService, DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { DAYS, seedHistory, seedWebhooksOfAllTypes } from "../parts/delivery-history.ts";
import type { Measurement, Scenario, Target } from "../parts/scenario.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { figuresOf, type Kind, transportTo, WARM_UP } from "../parts/timed-calls.ts";

/** The number of calls per kind. */
const CALLS = 200;
const PAGE_SIZE = 50;
/** The most requests of a kind of which one must find something. */
const CHECKED = 20;
/** The depth of deep pages, in pages of the maximum size. */
const DEEP = { pages: 100, pageSize: 1_000 };
const HOUR_MS = 3_600_000;

type List = Parameters<Client<typeof DeliveryService>["listDeliveries"]>[0];

const P99: Target = { atMost: 500 };
const PAGE_P50: Target = { atMost: 50 };
const LISTS = [
  "first page",
  "deep page",
  "page back",
  "1,000 rows",
  "delivered",
  "failed",
  "cancelled",
  "pending",
  "retrying",
  "failed or cancelled",
  "busy webhook",
  "quiet webhook",
  "webhook failed",
  "healthy webhook failed",
  "webhook cancelled",
  "event type",
  "event type failed",
  "an hour",
  "an hour failed",
  "delivery id",
  "event id",
  "unknown id",
] as const;

/** Lists that find nothing. */
const EMPTY: readonly string[] = ["healthy webhook failed", "unknown id"] satisfies (typeof LISTS)[number][];

/** The latency of lists and counts over many deliveries. */
export const lists: Scenario = {
  name: "lists",
  what: "lists, searches and counts among many deliveries, over HTTP: median and 99th percentile",
  count: { full: 1_000_000, small: 100_000 },
  targets: {
    ...Object.fromEntries(LISTS.map((name) => [`${name} p99`, P99])),
    "first page p50": PAGE_P50,
    "deep page p50": PAGE_P50,
    "one delivery p99": P99,
    "overview max": P99,
    "webhook stats max": P99,
  },
  comparisons: [],
  async measure(bench, count) {
    await using stage = await openStage(bench);
    const webhooks = await seedWebhooksOfAllTypes(stage.db, stage.secrets);
    await seedHistory(stage, count, webhooks);
    const calls = Math.min(CALLS, Math.ceil(count / 500));
    const measured: Measurement[] = [];
    for (const kind of await kindsOf(stage, webhooks, calls)) {
      bench.stopping.throwIfAborted();
      measured.push(...(await figuresOf(kind, calls, { p50: 0.5, p99: 0.99 })));
    }
    return [...measured, ...(await countsOf(stage, calls))];
  },
};

async function kindsOf(stage: Stage, webhooks: readonly bigint[], calls: number): Promise<Kind[]> {
  const client = createClient(DeliveryService, transportTo(stage));
  const listed = (
    name: (typeof LISTS)[number],
    request: (n: number) => List,
  ): Kind & { check(): Promise<void> } => ({
    name,
    call: (n) => client.listDeliveries({ pageSize: PAGE_SIZE, ...request(n) }),
    check: () => checkList(client, name, request),
  });
  const of = (...states: (keyof typeof DeliveryState)[]) => ({
    states: states.map((name) => DeliveryState[name]),
  });
  // The busy webhooks come first.
  const busy = (n: number) => ({ webhookId: webhooks[n % 10] as bigint });
  const quiet = (n: number) => ({ webhookId: webhooks[10 + ((n * 7) % 990)] as bigint });
  const type = (n: number) => ({ process: (1 + (n % 3)) as WebhookProcess });
  const hour = (n: number) => {
    const from = Date.now() - ((n * 7) % (DAYS * 24)) * HOUR_MS;
    return { from: timestampFromMs(from - HOUR_MS), to: timestampFromMs(from) };
  };
  const deep = await deepTokens(client, calls + WARM_UP);
  const token = (tokens: readonly string[]) => (n: number) => ({
    pageToken: tokens[n % tokens.length] as string,
  });
  const known = (await client.listDeliveries({ pageSize: 1_000 })).deliveries;
  const some = (n: number) => known[(n * 7) % known.length];
  const kinds = [
    listed("first page", () => ({})),
    listed("deep page", token(deep.older)),
    listed("page back", token(deep.newer)),
    listed("1,000 rows", () => ({ pageSize: 1_000 })),
    listed("delivered", () => of("DELIVERED")),
    listed("failed", () => of("FAILED")),
    listed("cancelled", () => of("CANCELLED")),
    listed("pending", () => of("PENDING")),
    listed("retrying", () => of("RETRYING")),
    listed("failed or cancelled", () => of("FAILED", "CANCELLED")),
    listed("busy webhook", busy),
    listed("quiet webhook", quiet),
    listed("webhook failed", (n) => ({ ...busy(n), ...of("FAILED") })),
    listed("healthy webhook failed", (n) => ({ ...quiet(n), ...of("FAILED") })),
    listed("webhook cancelled", (n) => ({ ...busy(n), ...of("CANCELLED") })),
    listed("event type", type),
    listed("event type failed", (n) => ({ ...type(n), ...of("FAILED") })),
    listed("an hour", hour),
    listed("an hour failed", (n) => ({ ...hour(n), ...of("FAILED") })),
    listed("delivery id", (n) => ({ deliveryId: some(n)?.id ?? "" })),
    listed("event id", (n) => ({ eventId: some(n)?.eventId ?? "" })),
    listed("unknown id", () => ({ eventId: randomUUID() })),
  ];
  for (const { check } of kinds) await check();
  return [
    ...kinds,
    { name: "one delivery", call: (n) => client.getDelivery({ deliveryId: some(n)?.id ?? "" }) },
  ];
}

/** Fails if a list does not find what there is: the first pages may be empty, and lead to others. */
async function checkList(
  client: Client<typeof DeliveryService>,
  name: (typeof LISTS)[number],
  request: (n: number) => List,
): Promise<void> {
  let found = 0;
  for (let n = 0; n < CHECKED && found === 0; n += 1) {
    const list = request(n);
    for (let pageToken = list.pageToken ?? ""; ; ) {
      const page = await client.listDeliveries({ pageSize: PAGE_SIZE, ...list, pageToken });
      const isWrong = page.deliveries.some(
        ({ state, webhookId }) =>
          (list.states && !list.states.includes(state)) || (list.webhookId && list.webhookId !== webhookId),
      );
      if (isWrong) throw new Error(`${name}: the list has deliveries that do not match`);
      found += page.deliveries.length;
      pageToken = page.nextPageToken;
      if (found > 0 || pageToken === "") break;
    }
  }
  if (found === 0 && !EMPTY.includes(name)) throw new Error(`${name}: the list found nothing`);
}

/** Tokens of consecutive pages deep in the list, and of those that lead back. */
async function deepTokens(client: Client<typeof DeliveryService>, most: number) {
  let pageToken = "";
  for (let page = 0; page < DEEP.pages; page += 1) {
    const { nextPageToken } = await client.listDeliveries({ pageSize: DEEP.pageSize, pageToken });
    if (nextPageToken === "") break;
    pageToken = nextPageToken;
  }
  const older = [pageToken];
  const newer: string[] = [];
  while (newer.length < most) {
    const page = await client.listDeliveries({ pageSize: PAGE_SIZE, pageToken: older.at(-1) as string });
    newer.push(page.previousPageToken);
    if (page.nextPageToken === "") break;
    older.push(page.nextPageToken);
  }
  return { older, newer };
}

/** Counts that are shared between callers. The slowest call is the one that reads them. */
async function countsOf(stage: Stage, calls: number): Promise<Measurement[]> {
  const client = createClient(StatsService, transportTo(stage));
  const kinds: Kind[] = [
    { name: "overview", call: () => client.getOverview({}) },
    { name: "webhook stats", call: () => client.listWebhookStats({}) },
  ];
  const measured: Measurement[] = [];
  for (const kind of kinds) {
    measured.push(...(await figuresOf(kind, calls, { p50: 0.5, max: 1 }, 0)));
  }
  return measured;
}
