import { createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { IncidentService } from "../../gen/webhook/v1/incident_pb.ts";
import { fileService, WOKEN } from "../support/test-service.ts";
import { eventually } from "../support/wait.ts";

const service = fileService(WOKEN);

test("an endpoint that answers 503 is an incident until it answers 200, with notices of both", async () => {
  const incidents = createClient(IncidentService, service.transport);
  const list = async (open: boolean) => (await incidents.listIncidents({ open })).incidents;
  const subscriber = await service.receiver();
  for (const process of [WebhookProcess.INCIDENT_OPENED, WebhookProcess.INCIDENT_CLOSED])
    await service.register(`${subscriber.url}/`, { process });
  let status = 503;
  const receiver = await service.endpoint(() => status);
  await service.publish();
  const { host } = new URL(receiver.url);
  await eventually(async () =>
    expect(await list(true)).toMatchObject([
      { cause: { code: "http_5xx" }, subject: host, webhooks: 1n, failingWebhooks: 1n },
    ]),
  );
  status = 200;
  const { eventId } = await service.publish(2n);
  await service.untilDelivered(eventId);
  await eventually(async () => expect(await list(true)).toEqual([]));
  expect(await list(false)).toMatchObject([{ subject: host, failingWebhooks: 0n }]);
  await subscriber.until(({ length }) => length === 2);
  const bodies = subscriber.received.map(({ body }) => JSON.parse(String(body)));
  expect(bodies.map(({ Cause, Subject, Webhooks }) => [Cause, Subject, Webhooks])).toEqual([
    ["http_5xx", host, 1],
    ["http_5xx", host, 1],
  ]);
});
