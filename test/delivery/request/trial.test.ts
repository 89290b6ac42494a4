import { X509Certificate } from "node:crypto";
import pino from "pino";
import { expect, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { timingOf } from "../../../src/contract/request-timing.ts";
import type { TrialOutcome } from "../../../src/contract/target-rules.ts";
import { createRequestTrial } from "../../../src/delivery/request/trial.ts";
import { createAddressGuard } from "../../../src/lib/egress/address-guard.ts";
import { aReceiver, localCertificate } from "../../support/receivers.ts";
import { useApi } from "../../support/test-api.ts";
import { LOOPBACK } from "../http-parts.ts";

const api = await useApi();
const { db, secrets } = api.context;

/** Sends a test request to a URL. */
async function tried(url: string, timeoutMs = 60_000): Promise<TrialOutcome> {
  const trial = createRequestTrial({
    db,
    secrets,
    guards: { operator: createAddressGuard([LOOPBACK]), customers: createAddressGuard([]) },
    log: pino({ level: "silent" }),
    delivery: { proxy: undefined, proxyDns: "local", timeoutMs },
  });
  const webhookId = await api.register();
  const stored = () => db("webhooks").where("id", String(webhookId));
  await stored().update({ url, target_url: url });
  const [revision] = await stored().pluck("revision");
  const given = { headers: [], oauth2: null, tls: null, payload: "{}" };
  const outcome = await trial({ webhookId, revision: BigInt(revision as bigint), ...given });
  return outcome as TrialOutcome;
}

const partsOf = ({ timing }: TrialOutcome) => Object.keys(timingOf(timing));

test("a test request tells where its time went, the addresses and the certificates, each time anew", async () => {
  const receiver = await aReceiver();
  for (let n = 0; n < 2; n += 1) {
    const outcome = await tried(`${receiver.url}/${n}`);
    expect(outcome).toMatchObject({ accepted: true, cause: null });
    expect(partsOf(outcome)).toEqual(["dnsMs", "connectMs", "tlsMs", "firstByteMs", "bodyMs"]);
    expect(outcome.addresses).toContain("127.0.0.1");
    const [own, issuer] = outcome.certificates;
    expect(own?.names).toEqual(["localhost", "127.0.0.1"]);
    const stated = new X509Certificate((await localCertificate()).cert);
    expect([own?.notBefore, own?.notAfter]).toEqual([stated.validFromDate, stated.validToDate]);
    if (issuer) expect(issuer.subject).toBe(own?.issuer);
  }
});

test("a certificate that is not accepted is shown, and the request ended in TLS", async () => {
  const certificate = await (await createLocalAuthority()).issue(["other.example"]);
  const outcome = await tried(`${(await aReceiver(undefined, certificate)).url}/`);
  expect(outcome.cause?.code).toMatch(/^certificate_/);
  expect(partsOf(outcome).slice(0, 3)).toEqual(["dnsMs", "connectMs", "tlsMs"]);
  expect(outcome.certificates[0]?.names).toEqual(["other.example"]);
});

test("without a connection there are no later parts, and no certificate", async () => {
  const receiver = await aReceiver();
  await receiver.close();
  const outcome = await tried(`${receiver.url}/`);
  expect(outcome.cause).toMatchObject({ code: "connection_refused", summary: "connection refused" });
  expect(partsOf(outcome)).toEqual(["dnsMs", "connectMs"]);
  expect(outcome.certificates).toEqual([]);
});
