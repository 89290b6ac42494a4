import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import { callMethod, METHODS } from "../../support/any-method.ts";
import { costlyRequest } from "../../support/costly-requests.ts";
import { anOrder } from "../../support/grpc-calls.ts";
import { ONLY, startTestApi } from "../../support/test-api.ts";

const CALLS = 40;
const EVENTS = 20;
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

test.each(
  METHODS.flatMap(([name, method]) =>
    Object.entries(attackers).map(([kind, { secret }]) => ({ name, method, kind, secret })),
  ),
)("$name with the arguments that cost most, by a $kind, stops no other call", async ({ method, secret }) => {
  const codes: Code[] = [];
  const attack = Array.from({ length: CALLS }, (_, nth) =>
    callMethod(api, method, secret, costlyRequest(method, ids, nth)).catch((error) => {
      codes.push(ConnectError.from(error).code);
    }),
  );
  const other = Array.from({ length: 5 }, () => api.webhooks.getWebhook({ webhookId: otherId }));
  for (const { webhook } of await Promise.all(other)) expect(webhook?.id).toBe(otherId);
  await Promise.all(attack);
  for (const code of FAULTS) expect(codes, Code[code]).not.toContain(code);
});
