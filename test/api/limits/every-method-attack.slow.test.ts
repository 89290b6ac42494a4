import { request } from "node:http";
import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, expect, test } from "vitest";
import { rows } from "../../../src/lib/pg/database.ts";
import { callMethod, METHODS } from "../../support/any-method.ts";
import { costlyJson, costlyRequest } from "../../support/costly-requests.ts";
import { anOrder } from "../../support/grpc-calls.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { ONLY, startTestApi } from "../../support/test-api.ts";

const CALLS = 40;
const UNREAD_CALLS = 10;
const EVENTS = 20;
/** The service closes connections of an attacker whose calls are reset too often. */
const CLOSED = /closed with error code/;
/** Errors that say that the service is at fault. */
const FAULTS = [Code.Unknown, Code.Internal, Code.DataLoss, Code.Unimplemented, Code.Unavailable];

const api = await startTestApi();
afterAll(() => api.stop());
const app = await api.app("attacker");
const attackers = {
  "reading key": await api.key({ installedAppId: app, permissions: ONLY.read }),
  "writing key": await api.key({ installedAppId: app }),
};
const webhookIds = await Promise.all(
  Array.from({ length: 20 }, () => api.register({ key: attackers["writing key"].secret })),
);
const otherId = await api.register();
for (let orderId = 1n; orderId <= EVENTS; orderId += 1n)
  await api.events.publishEvent(anOrder({ orderId, orderNumber: "1".repeat(10_000) }));
const deliveries = await rows<{ id: string; eventId: string }>(
  api.context.db,
  `select id, event_id as "eventId" from queue where webhook_id <> :otherId::bigint`,
  { otherId },
);
const ids = {
  webhookIds,
  deliveryIds: deliveries.map(({ id }) => id),
  eventIds: deliveries.map(({ eventId }) => eventId),
};

/** Calls a method with another key over a separate connection. Returns the HTTP status. */
async function getOther(): Promise<number> {
  const { status } = await fetch(`${api.url}/webhook.v1.WebhookService/GetWebhook`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-service-key": api.adminKey },
    body: JSON.stringify({ webhookId: String(otherId) }),
  });
  return status;
}

/** Calls a method and never reads the response. Returns what closes the connection. */
function callUnread(method: DescMethod, secret: string, nth: number): () => void {
  const body = Buffer.from(costlyJson(method, ids, nth));
  const isUnary = method.methodKind === "unary";
  const sent = request(`${api.url}/${method.parent.typeName}/${method.name}`, {
    method: "POST",
    agent: false,
    headers: {
      "content-type": isUnary ? "application/json" : "application/connect+json",
      "connect-protocol-version": "1",
      "x-service-key": secret,
    },
  });
  // Without a listener of "response", the response would be read.
  sent.on("response", () => {});
  sent.on("error", () => {});
  sent.end(isUnary ? body : enveloped(body));
  return () => sent.destroy();
}

test.each(
  METHODS.flatMap(([name, method]) =>
    Object.entries(attackers).map(([kind, { secret }]) => ({ name, method, kind, secret })),
  ),
)("$name with the arguments that cost most, by a $kind, stops no other call", async ({ method, secret }) => {
  const codes: Code[] = [];
  const unread = Array.from({ length: UNREAD_CALLS }, (_, nth) => callUnread(method, secret, nth));
  const attack = Array.from({ length: CALLS }, (_, nth) =>
    callMethod(api, method, secret, costlyRequest(method, ids, nth)).catch((error) => {
      const { code, rawMessage } = ConnectError.from(error);
      if (!CLOSED.test(rawMessage)) codes.push(code);
    }),
  );
  const other = Array.from({ length: 5 }, getOther);
  for (const status of await Promise.all(other)) expect(status).toBe(200);
  await Promise.all(attack);
  for (const close of unread) close();
  for (const code of FAULTS) expect(codes, Code[code]).not.toContain(code);
});
