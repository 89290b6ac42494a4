import { once } from "node:events";
import { connect as openSocket } from "node:net";
import { Code, createClient } from "@connectrpc/connect";
import * as grpcJs from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../../gen/health/v1/health_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { connect } from "../../support/clients.ts";
import {
  foreignClient,
  lock,
  orderEvent,
  reasonOf,
  refused,
  waitingQueries,
} from "../../support/grpc-calls.ts";
import { startTestApi } from "../../support/test-api.ts";

test("a service that stops lets calls and streams in flight finish, ends watches and idle connections, and accepts nothing more", async () => {
  const api = await startTestApi();
  const idle = openSocket(api.httpPort, "127.0.0.1");
  idle.write("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
  await once(idle, "data");
  const idleClosed = once(idle, "close");
  const watched: Status[] = [];
  const watch = refused(
    (async () => {
      for await (const { status } of api.client(Health).watch({})) watched.push(status);
    })(),
  );
  await expect.poll(() => watched).toEqual([Status.SERVING]);

  const release = await lock(api, "webhooks");
  const foreign = foreignClient(api);
  const inFlight = [
    api.rest("GET", "/api/webhook/list").then(({ envelope }) => envelope.Data),
    api
      .client(WebhookService)
      .listWebhooks({})
      .then(({ webhooks }) => webhooks),
    foreign.call("ListWebhooks", {}),
  ];
  const last = Promise.withResolvers<void>();
  const stream = api.client(EventService).publishEvents(
    (async function* () {
      yield { events: [orderEvent()] };
      await last.promise;
      yield { events: [orderEvent()] };
    })(),
  );
  await expect.poll(() => waitingQueries(api)).toBe(4);

  const stopped = api.stop();
  const isRefused = () =>
    fetch(api.url).then(
      () => false,
      () => true,
    );
  await expect.poll(isRefused).toBe(true);
  expect((await watch).code).toBe(Code.Unavailable);
  expect(watched).toEqual([Status.SERVING, Status.NOT_SERVING]);
  await release();
  last.resolve();
  expect(await Promise.all(inFlight)).toEqual([[], [], { webhooks: [] }]);
  expect((await stream).results.map(({ result }) => result.case)).toEqual(["published", "published"]);
  await idleClosed;
  await stopped;
  foreign.close();
});

test("a service that stops ends what has not finished in time, with UNAVAILABLE and a time to come again", async () => {
  const api = await startTestApi({ drainMs: 300 });
  const release = await lock(api, "webhooks");
  const foreign = foreignClient(api);
  const listed = foreign.call("ListWebhooks", {}).catch((error: grpcJs.ServiceError) => error);
  const overConnect = refused(createClient(WebhookService, connect(api)).listWebhooks({}));
  await expect.poll(() => waitingQueries(api)).toBe(2);
  const incomplete = openSocket(api.httpPort, "127.0.0.1").on("error", () => {});
  incomplete.write("POST /api/webhook HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n");
  await once(incomplete, "connect");
  // Not `once`, which an error ends: the service may reset the connection.
  const closed = new Promise((resolve) => void incomplete.once("close", resolve));

  const stopped = api.stop();
  expect(await listed).toMatchObject({
    code: grpcJs.status.UNAVAILABLE,
    details: "the service is stopping; retry",
  });
  const error = await overConnect;
  expect([error.code, reasonOf(error)]).toEqual([Code.Unavailable, "STOPPING"]);
  expect(error.findDetails(RetryInfoSchema)).toHaveLength(1);
  await closed;
  foreign.close();
  await release();
  await stopped;
});
