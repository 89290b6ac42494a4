import { once } from "node:events";
import * as http2 from "node:http2";
import { connect as openSocket } from "node:net";
import { Code, createClient } from "@connectrpc/connect";
import * as grpcJs from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { connect, grpc } from "../../support/clients.ts";
import {
  foreignClient,
  lock,
  orderEvent,
  reasonOf,
  refused,
  waitingQueries,
} from "../../support/grpc-calls.ts";
import { startTestApi } from "../../support/test-api.ts";

describe("keep-alive", () => {
  test("a client's pings are answered", async () => {
    const api = await startTestApi();
    onTestFinished(() => api.stop());
    const session = http2.connect(api.grpcUrl);
    onTestFinished(() => session.destroy());
    await once(session, "connect");
    const answered = await new Promise<Buffer>((resolve, reject) => {
      session.ping(Buffer.from("8 bytes!"), (error, _ms, payload) =>
        error ? reject(error) : resolve(payload),
      );
    });
    expect(answered.toString()).toBe("8 bytes!");
  });

  test("a session whose peer answers pings stays, one whose peer is silent is ended", async () => {
    // The one that answers is in this process too: it must not be silent for so long because the machine is busy.
    const own = await startTestApi({ keepAlive: { everyMs: 50, timeoutMs: 2_000 } });
    onTestFinished(() => own.stop());
    const session = http2.connect(own.grpcUrl);
    onTestFinished(() => session.destroy());
    await once(session, "connect");

    // HTTP/2's preface and an empty SETTINGS frame, and then not a word.
    const silent = openSocket(own.grpcPort as number, "127.0.0.1");
    onTestFinished(() => void silent.destroy());
    silent.on("error", () => {});
    silent.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    silent.write(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]));
    silent.resume();
    await once(silent, "close");
    expect(session.closed).toBe(false);
    await once(session, "ping");
  });
});

describe("stopping", () => {
  test("lets calls and streams in flight finish, of clients of any make", async () => {
    const own = await startTestApi();
    const release = await lock(own, "webhooks");
    const client = foreignClient(own);
    const listed = client.call("ListWebhooks", {});
    // A stream that has sent one event of two when the service begins to stop.
    let sendLast = () => {};
    const last = new Promise<void>((resolve) => {
      sendLast = resolve;
    });
    const stream = createClient(EventService, grpc(own)).publishEvents(
      (async function* () {
        yield { events: [orderEvent()] };
        await last;
        yield { events: [orderEvent()] };
      })(),
    );
    await expect.poll(() => waitingQueries(own)).toBe(2);

    const stopped = own.stop();
    await expect
      .poll(() =>
        fetch(own.url).then(
          () => "taken",
          () => "refused",
        ),
      )
      .toBe("refused");
    await release();
    sendLast();
    expect(await listed).toEqual({ webhooks: [] });
    expect((await stream).results.map(({ result }) => result.case)).toEqual(["published", "published"]);
    await stopped;
    client.close();
  });

  test("ends what has not finished in time, with UNAVAILABLE and a time to come again", async () => {
    const own = await startTestApi({ drainMs: 300 });
    const release = await lock(own, "webhooks");
    const client = foreignClient(own);
    const listed = client.call("ListWebhooks", {}).catch((error: grpcJs.ServiceError) => error);
    const overConnect = refused(createClient(WebhookService, connect(own)).listWebhooks({}));
    await expect.poll(() => waitingQueries(own)).toBe(2);
    const stopped = own.stop();
    expect(await listed).toMatchObject({
      code: grpcJs.status.UNAVAILABLE,
      details: "the service is stopping; retry",
    });
    const error = await overConnect;
    expect([error.code, reasonOf(error)]).toEqual([Code.Unavailable, "STOPPING"]);
    expect(error.findDetails(RetryInfoSchema)).toHaveLength(1);
    client.close();
    await release();
    await stopped;
  });
});
