import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { onTestFinished } from "vitest";
import { openDatabase } from "../../src/lib/pg/database.ts";
import { createTestDatabase } from "../support/database.ts";
import { ONLY, type TestApi } from "../support/test-api.ts";
import { type Dependent, examples } from "./dependent.ts";

/** An outbox with 1,200 rows, and relays that publish them with a key of their own until the test ends. */
export async function createOutbox(
  api: TestApi,
  { folder, environment, copy }: Dependent,
  eventsPerSecond: number | null = null,
) {
  const quotas = { webhookQuota: null, eventsPerSecond };
  const { id, secret } = await api.key({ permissions: ONLY.publish, quotas });
  const database = await createTestDatabase();
  const store = openDatabase(database.url, { max: 1, applicationName: "outbox" });
  onTestFinished(async () => {
    await store.destroy();
    await database.drop();
  });
  await store.raw(await readFile(path.join(examples, "outbox/outbox.sql"), "utf8"));
  await copy("outbox/outbox.ts");
  return {
    store,
    startRelay(address = `127.0.0.1:${api.grpcPort}`) {
      const env = {
        ...environment,
        WEBHOOK_KEY: secret,
        WEBHOOK_GRPC: address,
        OUTBOX_DATABASE_URL: database.url,
      };
      const relay = spawn(process.execPath, ["outbox.ts"], { cwd: folder, env, stdio: "ignore" });
      onTestFinished(() => void relay.kill("SIGKILL"));
      return relay;
    },
    left: async () => Number((await store("outbox").count())[0]?.count),
    published: () => api.context.db("events").where("api_key_id", id).select("id", "idempotency_key"),
  };
}
