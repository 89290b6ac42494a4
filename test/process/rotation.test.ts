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
import { STATUS_CODES } from "../../src/contract/errors.ts";
import { temporaryFolder } from "../lib/dev-servers/support.ts";
import { part } from "../support/parts.ts";
import { startTemporalGateway } from "../support/temporal-gateway.ts";
import { ownTemporalNames } from "../support/test-service.ts";
import { adminKey, READY, startedService } from "./started-service.ts";

const BETWEEN_CALLS_MS = 20;
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
  const { starting, httpPort } = await startedService({ ROLE: "api", TLS_CERT: certFile, TLS_KEY: keyFile });
  const { url } = await starting;
  const fingerprint = async () => {
    const socket = connect({ port: httpPort, host: "localhost", ca: authority.cert });
    await once(socket, "secureConnect");
    const { fingerprint256 } = socket.getPeerCertificate();
    socket.destroy();
    return fingerprint256;
  };
  /** Calls over one connection that stays open, and over a new one for each call. */
  const options = { baseUrl: url, nodeOptions: { ca: authority.cert } };
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
  });

  const first = await fingerprint();
  await install();
  await expect.poll(fingerprint).not.toBe(first);
  stopping.abort();
  await load;
});

test("Temporal's API key is corrected while a worker waits for its first connection, and replaced while the worker runs; no call with a valid key is refused", async () => {
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
  const { starting, readiness } = await startedService(
    { ROLE: "worker", DISPATCH_INTERVAL: "1s", TEMPORAL_ADDRESS: address },
    {
      names: ownTemporalNames(),
      environment: { TEMPORAL_ADDRESS: address, TEMPORAL_TLS: "false", TEMPORAL_API_KEY_FILE: keyFile },
      workflowBundle: { codePath: (await part("workflows")).bundle },
    },
  );
  await expect.poll(() => refused).not.toEqual([]);
  await writeFile(keyFile, "first-key\n");
  await starting;
  expect(await readiness()).toEqual(READY);

  refused.length = 0;
  valid.add("second-key");
  await writeFile(keyFile, "second-key\n");
  // Readiness asks Temporal over the client's connection; tasks of the workers use the other one.
  await expect
    .poll(async () => {
      expect(await readiness()).toEqual(READY);
      return seen.get("second-key")?.size ?? 0;
    })
    .toBe(2);
  valid.delete("first-key");
  expect(await readiness()).toEqual(READY);
  expect(refused).toEqual([]);
});
