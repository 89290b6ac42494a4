import { X509Certificate } from "node:crypto";
import { afterEach, expect, test } from "vitest";
import { post } from "../../src/delivery/request/post.ts";
import { SeenCertificates, trackCertificates } from "../../src/incidents/host-certificates.ts";
import { listIncidents, openIncidentsOf } from "../../src/incidents/incidents.ts";
import { createAddressGuard } from "../../src/lib/egress/address-guard.ts";
import { createHttpClient } from "../../src/lib/egress/http-client.ts";
import { LOOPBACK } from "../delivery/http-parts.ts";
import { openQueueDatabase, queueMany } from "../queue/queue.ts";
import { aReceiver, localCertificate } from "../support/receivers.ts";
import { judgedWebhooks } from "./failing.ts";

const db = await openQueueDatabase();
afterEach(() => db("host_certificates" as never).delete());
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000);
const track = () => db.transaction(trackCertificates);
const list = () => listIncidents(db, "everything", {}, { after: null, limit: 10 });

/** Stores that a certificate was seen. */
async function seen(host: string, notAfter: Date, ofCustomers = false): Promise<void> {
  const certificates = new SeenCertificates();
  certificates.note(host, notAfter, ofCustomers);
  await certificates.store(db);
}

test("a certificate that ends within 14 days is one warning for the webhooks of its host, until it is renewed", async () => {
  const webhooks = await queueMany(db, { urlPrefix: "https://shop.example/", webhooks: 3, events: 1 });
  await queueMany(db, { urlPrefix: "https://shop.example:8443/", webhooks: 1, events: 1 });
  await seen("shop.example", inDays(13));
  await seen("shop.example:8443", inDays(15));
  await seen("unused.example", inDays(1));
  expect((await track()).map(({ change }) => change)).toEqual(["joined", "joined", "joined"]);
  expect(await track()).toEqual([]);
  expect(await list()).toMatchObject([
    {
      cause: "certificate_ends",
      subject: "shop.example",
      warning: true,
      webhooks: 3n,
      failingWebhooks: 3n,
      waiting: 0n,
    },
  ]);
  // A webhook that fails is in an incident beside.
  await judgedWebhooks(db, webhooks.slice(0, 1));
  expect(await list()).toMatchObject([{ cause: "connection_refused", warning: false }, { warning: true }]);
  expect((await openIncidentsOf(db, "everything", webhooks)).size).toBe(1);
  await judgedWebhooks(db, webhooks.slice(0, 1), null);
  await seen("shop.example", inDays(90));
  expect((await track()).map(({ change }) => change)).toEqual(["left", "left", "left"]);
  expect((await list()).every(({ ended }) => ended !== null)).toBe(true);
});

test("a customer is not warned about a certificate that only the operator's requests, or only others' have seen", async () => {
  const webhooks = await queueMany(db, { urlPrefix: "https://shared.example/", webhooks: 3, events: 1 });
  const [own, ofAcme, ofGlobex] = webhooks as [bigint, bigint, bigint];
  await db("webhooks").where({ id: ofAcme }).update({ customer: "acme" });
  await db("webhooks").where({ id: ofGlobex }).update({ customer: "globex" });
  const warned = async () => (await track()).map(({ webhookId, change }) => [webhookId, change]);
  const attempted = (id: bigint) =>
    db.raw("insert into rollup_hours select ?, date_trunc('hour', now()), 1, 1, 0, 0, 5, 5, '{1}'", [
      String(id),
    ]);
  await attempted(ofAcme);
  await seen("shared.example", inDays(5));
  expect(await warned()).toEqual([[own, "joined"]]);
  await seen("shared.example", inDays(6), true);
  expect(await warned()).toEqual([[ofAcme, "joined"]]);
  await attempted(ofGlobex);
  expect(await warned()).toEqual([[ofGlobex, "joined"]]);
});

test("a certificate is seen in the handshake of a delivery", async () => {
  const receiver = await aReceiver();
  const found: [string, Date, boolean][] = [];
  const onSecure = (...seen: [string, Date, boolean]) => void found.push(seen);
  const client = createHttpClient(createAddressGuard([LOOPBACK]), 10, undefined, undefined, onSecure);
  const request = { origin: receiver.url, path: "/", headers: [], body: "{}", signed: new Date() };
  for (const each of [client, client.guardedBy(createAddressGuard([LOOPBACK]))])
    await new Promise((resolve) => post(each, request as never, 60_000, resolve));
  await client.destroy();
  const { validToDate } = new X509Certificate((await localCertificate()).cert);
  const { host } = new URL(receiver.url);
  expect(found).toEqual([
    [host, validToDate, false],
    [host, validToDate, true],
  ]);
});
