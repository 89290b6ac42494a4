import { randomBytes } from "node:crypto";
import { Code, createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../../gen/health/v1/health_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { openDatabase } from "../../../src/db/database.ts";
import { createTestDatabase } from "../../support/database.ts";
import { lock, orderEvent, refused, waitingQueries } from "../../support/grpc-calls.ts";
import { part } from "../../support/parts.ts";
import { startServiceProcess } from "../../support/service-process.ts";
import { keyedTransport } from "../../support/test-service.ts";

test("SIGTERM lets calls and streams in flight finish, tells watchers, and ends with 0", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const db = openDatabase(database.url, { max: 2, applicationName: "test" });
  onTestFinished(() => db.destroy());
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const service = await startServiceProcess({
    ROLE: "api",
    DATABASE_URL: database.url,
    TEMPORAL_ADDRESS: (await part("temporal")).address,
    SECRET_KEY: randomBytes(32).toString("base64"),
    ADMIN_KEY: adminKey,
  });
  onTestFinished(async () => {
    if (service.process.exitCode === null) await service.end("SIGKILL");
  });
  const transport = keyedTransport(service.grpcPort, adminKey);
  const watched: Status[] = [];
  const watch = refused(
    (async () => {
      for await (const { status } of createClient(Health, transport).watch({})) watched.push(status);
    })(),
  );
  await expect.poll(() => watched).toEqual([Status.SERVING]);

  const release = await lock({ context: { db } }, "webhooks");
  const listed = createClient(WebhookService, transport).listWebhooks({});
  let sendLast = () => {};
  const last = new Promise<void>((resolve) => {
    sendLast = resolve;
  });
  const stream = createClient(EventService, transport).publishEvents(
    (async function* () {
      yield { events: [orderEvent()] };
      await last;
      yield { events: [orderEvent()] };
    })(),
  );
  await expect.poll(() => waitingQueries({ context: { db } })).toBe(2);

  const ended = service.end("SIGTERM");
  // The watch is told as soon as the service begins to stop.
  expect((await watch).code).toBe(Code.Unavailable);
  expect(watched).toEqual([Status.SERVING, Status.NOT_SERVING]);
  await release();
  sendLast();
  expect((await listed).webhooks).toEqual([]);
  expect((await stream).results.map(({ result }) => result.case)).toEqual(["published", "published"]);
  expect(await ended).toBe(0);
});
