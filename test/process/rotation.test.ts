import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import type { ServerHttp2Session } from "node:http2";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { connect } from "node:tls";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { STATUS_CODES } from "../../src/contract/errors.ts";
import { startService } from "../../src/service.ts";
import { temporaryFolder } from "../embedded/support.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { startTemporalGateway } from "../support/temporal-gateway.ts";
import { ownTemporalNames, quietRuntime } from "../support/test-service.ts";

const BETWEEN_CALLS_MS = 20;
const adminKey = `whk_${randomBytes(24).toString("base64url")}`;

/** The settings of a process with a fresh database. */
async function newSettings() {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  return {
    HOST: "127.0.0.1",
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    LOG_LEVEL: "silent",
    DATABASE_URL: database.url,
    SECRET_KEY: randomBytes(32).toString("base64"),
    ADMIN_KEY: adminKey,
  };
}

test("a TLS certificate is replaced while the service runs, and no call fails", async () => {
  const folder = await temporaryFolder();
  const authority = await createLocalAuthority();
  const [certFile, keyFile] = [path.join(folder, "tls.crt"), path.join(folder, "tls.key")];
  const install = async () => {
    const issued = await authority.issue(["localhost", "127.0.0.1"]);
    await writeFile(certFile, issued.cert);
    await writeFile(keyFile, issued.key);
  };
  await install();
  const service = await startService(
    readConfig({ ...(await newSettings()), ROLE: "api", TLS_CERT: certFile, TLS_KEY: keyFile }),
    { environment: {} },
  );
  const fingerprint = async () => {
    const socket = connect({ port: service.httpPort, host: "localhost", ca: authority.cert });
    await once(socket, "secureConnect");
    const { fingerprint256 } = socket.getPeerCertificate();
    socket.destroy();
    return fingerprint256;
  };
  /** Calls over one connection that stays open, and over a new one for each call. */
  const options = { baseUrl: service.url, nodeOptions: { ca: authority.cert } };
  const headers = { "X-Service-Key": adminKey };
  const kept = createClient(WebhookService, createGrpcTransport(options));
  const stopping = new AbortController();
  const load = (async () => {
    while (!stopping.signal.aborted) {
      const fresh = createGrpcTransport({ ...options, idleConnectionTimeoutMs: 1 });
      await kept.listWebhooks({}, { headers });
      await createClient(WebhookService, fresh).listWebhooks({}, { headers });
      await wait(BETWEEN_CALLS_MS);
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
  stopping.abort();
  await load;
});

test("Temporal's API key is corrected while a worker waits for its first connection, and replaced while the worker runs; no call with a valid key is refused", async () => {
  quietRuntime();
  const gateway = await startTemporalGateway();
  const valid = new Set(["first-key"]);
  const refused: string[] = [];
  /** The connections that each key was seen on. */
  const seen = new Map<string, Set<ServerHttp2Session>>();
  gateway.answer(({ authorization = "" }, connection) => {
    const key = authorization.replace("Bearer ", "");
    seen.set(key, (seen.get(key) ?? new Set()).add(connection));
    if (valid.has(key)) return null;
    refused.push(key);
    return STATUS_CODES.UNAUTHENTICATED;
  });
  const keyFile = path.join(await temporaryFolder(), "api-key");
  await writeFile(keyFile, "wrong-key\n");
  const { address } = gateway;
  const giveUp = new AbortController();
  const starting = startService(
    readConfig({
      ...(await newSettings()),
      ROLE: "worker",
      DISPATCH_INTERVAL: "1s",
      TEMPORAL_ADDRESS: address,
    }),
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
  await expect.poll(() => refused).not.toEqual([]);
  await writeFile(keyFile, "first-key\n");
  const { url } = await starting;
  const ready = async () => (await fetch(`${url}/readyz`)).status;
  expect(await ready()).toBe(200);

  refused.length = 0;
  valid.add("second-key");
  await writeFile(keyFile, "second-key\n");
  // Readiness asks Temporal over the client's connection; tasks of the workers use the other one.
  await expect
    .poll(async () => {
      expect(await ready()).toBe(200);
      return seen.get("second-key")?.size ?? 0;
    })
    .toBe(2);
  valid.delete("first-key");
  expect(await ready()).toBe(200);
  expect(refused).toEqual([]);
});
