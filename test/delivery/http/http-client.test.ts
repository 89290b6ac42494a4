import { type AddressInfo, createServer, type Socket } from "node:net";
import ipaddr from "ipaddr.js";
import { expect, onTestFinished, test } from "vitest";
import type { Network } from "../../../src/config/values.ts";
import { createHttpClient } from "../../../src/delivery/http/http-client.ts";
import { lookupError } from "../../../src/delivery/http/lookup-error.ts";
import { Pacer } from "../../../src/delivery/http/pacer.ts";
import { createAddressGuard } from "../../../src/delivery/request/address-guard.ts";
import { post } from "../../../src/delivery/request/post.ts";
import { systemClock } from "../../../src/process/clock.ts";

const LOOPBACK = ipaddr.parseCIDR("127.0.0.0/8") as Network;
/** The limits on new connections: how many at once, and how many more per second. */
const [AT_ONCE, PER_SECOND] = [100, 400];

test("connections are opened at a limited rate, however many requests need one", async () => {
  const wanted = 300;
  const opened: number[] = [];
  const sockets: Socket[] = [];
  const all = Promise.withResolvers<void>();
  // Answers no handshake, so that no connection is reused.
  const server = createServer((socket) => {
    socket.on("error", () => {});
    sockets.push(socket);
    if (opened.push(performance.now()) === wanted) all.resolve();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = createHttpClient(createAddressGuard([LOOPBACK]), 2 * wanted);
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await client.destroy();
    server.close();
  });
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const began = performance.now();
  for (let n = 0; n < wanted; n += 1)
    post(client, { origin, path: `/${n}`, headers: [], body: "{}" }, 60_000, () => {});
  await all.promise;
  for (const [before, at] of opened.entries())
    expect(at - began).toBeGreaterThan(((before + 1 - AT_ONCE) / PER_SECOND) * 1_000 - 20);
});

test("requests whose names do not exist take no connection's turn", async () => {
  const resolve = (name: string) => Promise.reject(lookupError(name, "ENOTFOUND"));
  const guard = createAddressGuard([], { resolver: { resolve, close() {} } });
  // The second turn comes after the requests' timeout.
  const client = createHttpClient(
    guard,
    10,
    undefined,
    new Pacer({ atOnce: 1, perSecond: 0.01 }, systemClock),
  );
  onTestFinished(() => client.destroy());
  const errors = ["one", "two", "three"].map(
    (name) =>
      new Promise((tell) =>
        post(
          client,
          { origin: `https://${name}.example`, path: "/", headers: [], body: "{}" },
          10_000,
          ({ error }) => tell(error),
        ),
      ),
  );
  for (const error of await Promise.all(errors)) expect(error).toContain("does not exist (NXDOMAIN)");
});
