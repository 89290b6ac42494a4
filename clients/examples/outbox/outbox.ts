import { setTimeout as delay } from "node:timers/promises";
import { create, fromJson, type JsonObject, toBinary } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  createWebhookClients,
  PublishEventBatchRequestSchema,
  type PublishEventRequest,
  PublishEventRequestSchema,
  type PublishResult,
  PublishResultSchema,
  reasonOf,
  withApiKey,
} from "@webhook-service/client";
import pg from "pg";

const { WEBHOOK_GRPC = "localhost:9090", WEBHOOK_KEY = "", OUTBOX_DATABASE_URL = "" } = process.env;
const { events } = createWebhookClients(
  createGrpcTransport({
    baseUrl: `http://${WEBHOOK_GRPC}`,
    interceptors: [withApiKey(WEBHOOK_KEY)],
    defaultTimeoutMs: 10_000,
  }),
);
const pool = new pg.Pool({ connectionString: OUTBOX_DATABASE_URL });
// A connection that breaks between two statements has no other listener, and would end the program.
pool.on("error", ({ message }) => console.error(`the connection broke: ${message}`));
pool.on("connect", (client) => client.on("error", () => {}));

/** Events in a batch: at most 1,000. */
const BATCH_SIZE = 500;
/** The size of a call, in bytes: at most 4 MiB. */
const MAX_CALL_BYTES = 3 * 1_048_576;
const IDLE_MS = 1_000;
/** The delay before an event is published again if the service names none. */
const RETRY_MS = 5_000;
/** The codes of events that cannot be published as they are. With any other code, the service may accept them later. */
const PERMANENT = new Set([Code.InvalidArgument, Code.AlreadyExists]);

interface Row {
  id: string;
  event: JsonObject;
}

/**
 * Publishes the oldest rows and deletes them; returns the number of rows taken. If the program dies or the connection
 * breaks between the two, the rows are published again with the same idempotency keys: the service recognises them and
 * delivers nothing twice. Any number of relays may run: each takes rows that no other has locked.
 */
async function relay(): Promise<number> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const { rows } = await client.query<Row>(
      `select id, event from outbox where error is null and (retry_at is null or retry_at <= now())
        order by id limit $1 for update skip locked`,
      [BATCH_SIZE],
    );
    if (rows.length > 0) await publish(client, rows);
    await client.query("commit");
    client.release();
    return rows.length;
  } catch (error) {
    // Closing the connection rolls the transaction back.
    client.release(true);
    throw error;
  }
}

/** Publishes locked rows: deletes those that the service has stored, and notes what to do with the others. */
async function publish(client: pg.PoolClient, rows: readonly Row[]): Promise<void> {
  const published: string[] = [];
  const refused: { id: string; message: string }[] = [];
  const postponed: { id: string; ms: number }[] = [];
  const ids: string[] = [];
  const batch: PublishEventRequest[] = [];
  for (const { id, event } of rows) {
    try {
      batch.push(fromJson(PublishEventRequestSchema, { ...event, idempotencyKey: `outbox-${id}` }));
      ids.push(id);
    } catch (error) {
      refused.push({ id, message: (error as Error).message });
    }
  }
  const results = await publishBatch(batch);
  for (const [index, id] of ids.entries()) {
    const result = results[index]?.result;
    if (result?.case === "published") published.push(id);
    else if (result?.case === "error") {
      const { code, message, retryAfter } = result.value;
      if (PERMANENT.has(code)) refused.push({ id, message });
      else postponed.push({ id, ms: retryAfter ? durationMs(retryAfter) : RETRY_MS });
    }
  }
  await client.query("delete from outbox where id = any($1)", [published]);
  await client.query(
    "update outbox set error = told.message from unnest($1::bigint[], $2::text[]) as told (id, message) where outbox.id = told.id",
    [refused.map(({ id }) => id), refused.map(({ message }) => message)],
  );
  await client.query(
    `update outbox set retry_at = clock_timestamp() + told.ms * interval '1 ms'
      from unnest($1::bigint[], $2::float8[]) as told (id, ms) where outbox.id = told.id`,
    [postponed.map(({ id }) => id), postponed.map(({ ms }) => ms)],
  );
  console.log(`published ${published.length}, refused ${refused.length}, to retry ${postponed.length}`);
}

/** Publishes events, in smaller batches if one is too large for a call; returns a result for each. */
async function publishBatch(batch: PublishEventRequest[]): Promise<PublishResult[]> {
  if (batch.length === 0) return [];
  const request = create(PublishEventBatchRequestSchema, { events: batch });
  let message = "the event is too large";
  if (toBinary(PublishEventBatchRequestSchema, request).length <= MAX_CALL_BYTES) {
    try {
      return (await events.publishEventBatch(request)).results;
    } catch (error) {
      const refusal = ConnectError.from(error);
      // More than 100,000 fields and list items.
      if (reasonOf(refusal) !== "MESSAGE_TOO_COMPLEX") throw error;
      message = refusal.rawMessage;
    }
  }
  if (batch.length === 1) {
    const value = { code: Code.InvalidArgument, message };
    return [create(PublishResultSchema, { result: { case: "error", value } })];
  }
  const half = Math.ceil(batch.length / 2);
  return [...(await publishBatch(batch.slice(0, half))), ...(await publishBatch(batch.slice(half)))];
}

for (;;) {
  try {
    const taken = await relay();
    if (taken < BATCH_SIZE) await delay(IDLE_MS);
  } catch (error) {
    console.error(`retrying: ${(error as Error).message}`);
    await delay(IDLE_MS);
  }
}
