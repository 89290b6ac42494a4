import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import {
  type ClientHttp2Session,
  connect as connectHttp2,
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { connect as connectTls } from "node:tls";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { startService } from "../../src/service.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { ownTemporalNames, quietRuntime } from "../support/test-service.ts";

const adminKey = `whk_${randomBytes(24).toString("base64url")}`;

/** A folder of the test's own, and the settings of a process with a fresh database. */
async function prepare() {
  const database = await createTestDatabase();
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-rotation-"));
  onTestFinished(async () => {
    await database.drop();
    await rm(folder, { recursive: true });
  });
  const settings = {
    HOST: "127.0.0.1",
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    LOG_LEVEL: "silent",
    DATABASE_URL: database.url,
    SECRET_KEY: randomBytes(32).toString("base64"),
    ADMIN_KEY: adminKey,
  };
  return { folder, settings };
}

test("a TLS certificate is replaced while the service runs, and no call fails", async () => {
  const { folder, settings } = await prepare();
  const authority = await createLocalAuthority();
  const [certFile, keyFile] = [path.join(folder, "tls.crt"), path.join(folder, "tls.key")];
  const install = async () => {
    const issued = await authority.issue(["localhost", "127.0.0.1"]);
    await writeFile(certFile, issued.cert);
    await writeFile(keyFile, issued.key);
  };
  await install();
  const service = await startService(
    readConfig({ ...settings, ROLE: "api", TLS_CERT: certFile, TLS_KEY: keyFile }),
    { environment: {} },
  );
  const fingerprint = async () => {
    const socket = connectTls({ port: service.httpPort, host: "localhost", ca: authority.cert });
    await once(socket, "secureConnect");
    const { fingerprint256 } = socket.getPeerCertificate();
    socket.destroy();
    return fingerprint256;
  };
  /** Calls over one connection that stays open, and over a new one for each call. */
  const options = { baseUrl: service.url, nodeOptions: { ca: authority.cert } };
  const headers = { "X-Service-Key": adminKey };
  const kept = createClient(WebhookService, createGrpcTransport(options));
  let calls = 0;
  const stopping = new AbortController();
  const load = (async () => {
    while (!stopping.signal.aborted) {
      const fresh = createGrpcTransport({ ...options, idleConnectionTimeoutMs: 1 });
      await kept.listWebhooks({}, { headers });
      await createClient(WebhookService, fresh).listWebhooks({}, { headers });
      calls += 2;
    }
  })();
  onTestFinished(async () => {
    stopping.abort();
    await load.catch(() => {});
    await service.stop();
  });

  const first = await fingerprint();
  await install();
  await expect.poll(fingerprint).not.toBe(first);
  const second = await fingerprint();
  // A key that does not fit: the certificate in use stays until the pair is complete.
  const third = await authority.issue(["localhost", "127.0.0.1"]);
  await writeFile(keyFile, third.key);
  const before = calls;
  await expect.poll(() => calls).toBeGreaterThan(before + 20);
  expect(await fingerprint()).toBe(second);
  await writeFile(certFile, third.cert);
  await expect.poll(fingerprint).not.toBe(second);
  stopping.abort();
  await load;
});

/** Starts a worker that reaches Temporal through the proxy, with the key of the file. */
async function startKeyedWorker(settings: Record<string, string>, address: string, keyFile: string) {
  quietRuntime();
  const giveUp = new AbortController();
  const starting = startService(
    readConfig({ ...settings, ROLE: "worker", DISPATCH_INTERVAL: "1s", TEMPORAL_ADDRESS: address }),
    {
      names: ownTemporalNames(),
      environment: { TEMPORAL_ADDRESS: address, TEMPORAL_TLS: "false", TEMPORAL_API_KEY_FILE: keyFile },
      workflowBundle: { codePath: (await part("workflows")).bundle },
      giveUp: giveUp.signal,
    },
  );
  onTestFinished(async () => {
    giveUp.abort();
    await starting.then(
      (service) => service.stop(),
      () => {},
    );
  });
  return starting;
}

test("Temporal's API key is replaced while a worker runs, and no call is refused", async () => {
  const { folder, settings } = await prepare();
  const proxy = await startKeyedTemporal();
  onTestFinished(() => proxy.close());
  const keyFile = path.join(folder, "api-key");
  await writeFile(keyFile, "first-key\n");
  proxy.valid.add("first-key");
  const service = await startKeyedWorker(settings, proxy.address, keyFile);
  expect([...proxy.seen.keys()]).toEqual(["first-key"]);

  proxy.valid.add("second-key");
  await writeFile(keyFile, "second-key\n");
  // Readiness asks Temporal over the client's connection; tasks of the workers use the other one.
  const ready = async () => (await fetch(`${service.url}/readyz`)).status;
  await expect
    .poll(async () => {
      expect(await ready()).toBe(200);
      return proxy.seen.get("second-key")?.size ?? 0;
    })
    .toBe(2);
  proxy.valid.delete("first-key");
  expect(await ready()).toBe(200);
  expect(proxy.refused).toEqual([]);
});

test("an API key that Temporal refuses is corrected while a worker waits for its first connection", async () => {
  const { folder, settings } = await prepare();
  const proxy = await startKeyedTemporal();
  onTestFinished(() => proxy.close());
  const keyFile = path.join(folder, "api-key");
  await writeFile(keyFile, "wrong-key\n");
  proxy.valid.add("right-key");
  const starting = startKeyedWorker(settings, proxy.address, keyFile);
  await expect.poll(() => proxy.refused).not.toEqual([]);
  await writeFile(keyFile, "right-key\n");
  const { url } = await starting;
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
});

/** Temporal behind a check of API keys, as Temporal Cloud makes it. */
async function startKeyedTemporal() {
  const { address } = await part("temporal");
  const valid = new Set<string>();
  const refused: string[] = [];
  /** The connections that each key was seen on. */
  const seen = new Map<string, Set<ServerHttp2Session>>();
  const targets = new Map<ServerHttp2Session, ClientHttp2Session>();
  const server = createServer();
  server.on("session", (session) => {
    const target = connectHttp2(`http://${address}`);
    target.on("error", () => session.destroy());
    session.on("error", () => {});
    session.once("close", () => target.destroy());
    targets.set(session, target);
  });
  server.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    const session = stream.session as ServerHttp2Session;
    const key = /^Bearer (.*)$/.exec(headers.authorization ?? "")?.[1] ?? "none";
    seen.set(key, (seen.get(key) ?? new Set()).add(session));
    stream.on("error", () => {});
    if (!valid.has(key)) {
      refused.push(`${headers[":path"]}: ${key}`);
      stream.respond(
        { ":status": 200, "content-type": "application/grpc", "grpc-status": "16" },
        { endStream: true },
      );
      return;
    }
    const call = (targets.get(session) as ClientHttp2Session).request(headers);
    call.on("error", () => stream.destroy());
    stream.on("close", () => call.close());
    stream.pipe(call);
    let trailers: IncomingHttpHeaders = {};
    call.on("trailers", (found: IncomingHttpHeaders) => {
      trailers = found;
    });
    call.on("response", (answer, flags) => {
      if (flags & 1) stream.respond(answer, { endStream: true });
      else {
        stream.respond(answer, { waitForTrailers: true });
        stream.on("wantTrailers", () => stream.sendTrailers(trailers));
        call.pipe(stream);
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    valid,
    seen,
    refused,
    close() {
      for (const [session, target] of targets) {
        session.destroy();
        target.destroy();
      }
      server.close();
    },
  };
}
