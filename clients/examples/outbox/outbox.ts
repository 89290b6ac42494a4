import { setTimeout as delay } from "node:timers/promises";
import { fromJson, type JsonObject } from "@bufbuild/protobuf";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { createWebhookClients, PublishEventRequestSchema, withApiKey } from "@webhook-service/client";
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

/** Events in a batch: at most 1,000, and at most 4 MiB. */
const BATCH_SIZE = 500;
const IDLE_MS = 1_000;

interface Row {
  id: string;
  event: JsonObject;
}

/**
 * Publishes the oldest rows and deletes them; returns their number. If the program dies or the connection breaks between
 * the two, the rows are published again with the same idempotency keys: the service recognises them and delivers nothing
 * twice. Any number of relays may run: each takes rows that no other has locked.
 */
async function relay(): Promise<number> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    const { rows } = await client.query<Row>(
      "select id, event from outbox where error is null order by id limit $1 for update skip locked",
      [BATCH_SIZE],
    );
    if (rows.length > 0) {
      const batch = rows.map(({ id, event }) =>
        fromJson(PublishEventRequestSchema, { ...event, idempotencyKey: `outbox-${id}` }),
      );
      const { results } = await events.publishEventBatch({ events: batch });
      for (const { result } of results) {
        if (result.case !== "error") continue;
        const { index, message } = result.value;
        await client.query("update outbox set error = $2 where id = $1", [rows[index]?.id, message]);
      }
      await client.query("delete from outbox where id = any($1) and error is null", [
        rows.map(({ id }) => id),
      ]);
    }
    await client.query("commit");
    client.release();
    return rows.length;
  } catch (error) {
    // Closing the connection rolls the transaction back.
    client.release(true);
    throw error;
  }
}

for (;;) {
  try {
    const published = await relay();
    if (published > 0) console.log(`published ${published}`);
    if (published < BATCH_SIZE) await delay(IDLE_MS);
  } catch (error) {
    console.error(`retrying: ${(error as Error).message}`);
    await delay(IDLE_MS);
  }
}
