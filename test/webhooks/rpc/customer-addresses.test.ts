import { Code } from "@connectrpc/connect";
import { afterAll, expect, test } from "vitest";
import { expectRefused } from "../../support/refusals.ts";
import { freshUrl, startTestApi } from "../../support/test-api.ts";

const asked: (string | null)[] = [];
const api = await startTestApi({
  environment: { DELIVERY_ALLOWED_NETWORKS: "10.0.0.0/8", CUSTOMER_ALLOWED_NETWORKS: "192.168.0.0/16" },
  warningsOf: async (_url, customer) => {
    asked.push(customer);
    return [];
  },
});
afterAll(() => api.stop());

/** Addresses that only one owner of a webhook may have, and the setting that would allow the other's. */
const OWNERS = [
  {
    name: "the operator",
    customer: null,
    own: "https://10.0.0.1/",
    other: "https://192.168.0.1/",
    setting: "DELIVERY_ALLOWED_NETWORKS",
  },
  {
    name: "a customer",
    customer: "acme",
    own: "https://192.168.0.1/",
    other: "https://10.0.0.1/",
    setting: "CUSTOMER_ALLOWED_NETWORKS",
  },
];

test.each(OWNERS)(
  "literal addresses of webhooks, endpoints and token endpoints of $name are those that it may have, whoever sets them",
  async (owner) => {
    const { customer, own, other, setting } = owner;
    const key = await api.key({ customer });
    const { webhooks, endpoints } = api.as(key.secret);
    const refused = (call: Promise<unknown>) => expectRefused(call, Code.InvalidArgument, setting);
    asked.length = 0;
    await refused(webhooks.createWebhook({ process: 1, url: other }));
    await refused(endpoints.createEndpoint({ processes: [1], url: other }));
    const rest = { json: { process: 1, url: other }, key: key.secret };
    expect((await api.rest("POST", "/api/webhook", rest)).status).toBe(400);
    expect(asked).toEqual([]);
    const { webhook } = await webhooks.createWebhook({ process: 1, url: freshUrl() });
    await endpoints.createEndpoint({ processes: [2], url: own });
    const webhookId = webhook?.id as bigint;
    const settings = (tokenUrl: string) => ({
      authentication: {
        case: "oauth2" as const,
        value: { tokenUrl, clientId: "id", clientSecret: "s3cret-s3cret" },
      },
    });
    // The operator may set those of a customer, too.
    for (const caller of [webhooks, api.webhooks]) {
      await refused(caller.updateWebhook({ webhookId, url: other }));
      await refused(caller.updateWebhook({ webhookId, requestSettings: settings(other) }));
      await refused(caller.setWebhookRequestSettings({ webhookId, settings: settings(other) }));
      await caller.setWebhookRequestSettings({ webhookId, settings: settings(own) });
      await caller.setWebhookRequestSettings({ webhookId, settings: {} });
      await caller.updateWebhook({ webhookId, url: own });
      await caller.updateWebhook({ webhookId, url: freshUrl() });
    }
    expect(asked).toEqual(Array(6).fill(customer));
  },
);
