import { once } from "node:events";
import { connect, createServer, type Http2ServerResponse } from "node:http2";
import type { AddressInfo } from "node:net";
import { Code, createContextValues } from "@connectrpc/connect";
import { pino } from "pino";
import { expect, test } from "vitest";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { errorInterceptor } from "../../../src/api/interceptors.ts";
import { HeldBytes, KeyShares } from "../../../src/api/limits/held-bytes.ts";
import { createRpcHandlers } from "../../../src/api/rpc/rpc-handlers.ts";
import type { ApiInstruments } from "../../../src/metrics/index.ts";
import { enveloped } from "../../support/hostile-messages.ts";

const PATH = `/${StatsService.typeName}/WatchOverview`;

test("a client that leaves while the service writes a stream has cancelled it, and no error is logged", async () => {
  const logged: string[] = [];
  const log = pino({ level: "warn" }, { write: (line) => logged.push(line) });
  const refused: Code[] = [];
  let leave = () => {};
  const ended = Promise.withResolvers<void>();
  const heldBytes = new HeldBytes(1_000, "messages");
  const handlers = createRpcHandlers({
    routes: (router) =>
      router.service(StatsService, {
        async *watchOverview() {
          try {
            yield {};
            // The next message is written before the service learns of this.
            leave();
            yield {};
          } finally {
            ended.resolve();
          }
        },
      }),
    routerOptions: {
      interceptors: [
        errorInterceptor(log, { rpcDuration: { record() {} } } as unknown as ApiInstruments, ({ code }) =>
          refused.push(code),
        ),
      ],
    },
    contextValues: () => createContextValues(),
    heldBytes,
    publicHeldBytes: heldBytes,
    hugeHeldBytes: heldBytes,
    keyShares: new KeyShares(1_000),
    onRefused() {},
    idleMs: 60_000,
    log,
  });
  const server = createServer((request, response: Http2ServerResponse) => {
    leave = () => response.stream.destroy();
    handlers.get(PATH)?.(request, response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const call = session.request({ ":method": "POST", ":path": PATH, "content-type": "application/grpc" });
  call.on("error", () => {});
  call.end(enveloped(new Uint8Array()));
  call.resume();

  await ended.promise;
  await expect.poll(() => refused).toEqual([Code.Canceled]);
  expect(logged).toEqual([]);

  session.destroy();
  server.close();
});
