import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const { DELIVERY_FAILED } = WebhookProcess;

test("the catalogue marks notices; the sample of a failed delivery has an error and no reason", async () => {
  const { processes } = await api.webhooks.listProcesses({});
  const notices = processes.filter(({ notice }) => notice).map(({ name }) => name);
  expect(notices).toEqual(["WebhookFailing", "WebhookRecovered", "WebhookDisabled", "DeliveryFailed"]);
  const sample = JSON.parse(processes.find(({ number }) => number === DELIVERY_FAILED)?.sample ?? "");
  expect(Object.keys(sample).slice(-2)).toEqual(["Reason", "LastError"]);
  expect(sample).toMatchObject({ Attempts: 4, Reason: null, LastError: "HTTP status 503" });
});

test.each(["webhookFailing", "webhook_recovered", "webhookDisabled", "deliveryFailed"])(
  "a caller cannot publish a notice, here %s: the error names the events that callers publish",
  async (name) => {
    const response = await fetch(`${api.url}/webhook.v1.EventService/PublishEvent`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-service-key": api.adminKey },
      body: JSON.stringify({ idempotencyKey: randomUUID(), userId: "u", [name]: { lastError: "made up" } }),
    });
    expect(await response.json()).toMatchObject({
      code: "invalid_argument",
      message: expect.stringMatching(
        new RegExp(
          `${name}.*; only the service publishes notices; allowed: .*orderDispatched, documentCreated, stockLevelChanged$`,
        ),
      ),
    });
  },
);
