import { styleText } from "node:util";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { type Client, createClient, type Transport } from "@connectrpc/connect";
import { ApiKeyService } from "../gen/webhook/v1/api_key_pb.ts";
import { DocumentKind, EventService } from "../gen/webhook/v1/event_pb.ts";
import { Permission } from "../gen/webhook/v1/options_pb.ts";
import { line, shortId } from "./output.ts";
import type { DemoReceivers } from "./receivers.ts";

/** The secrets of the demo's keys. */
export interface DemoKeys {
  integrator: string;
  /** Belongs to an installed app, so its webhooks get X-Service-UserId. */
  app: string;
  publisher: string;
}

/** Creates the demo's keys with the administrator's key. */
export async function createDemoKeys(transport: Transport, adminKey: string): Promise<DemoKeys> {
  const client = createClient(ApiKeyService, transport);
  const options = { headers: { "X-Service-Key": adminKey } };
  const { installedApp } = await client.createInstalledApp({ name: "Shipping Helper" }, options);
  line(`installed app "Shipping Helper" (${shortId(installedApp?.id ?? "")})`);
  const create = async (
    request: Parameters<Client<typeof ApiKeyService>["createApiKey"]>[0],
    what: string,
  ) => {
    const { secret, apiKey } = await client.createApiKey(request, options);
    line(`key "${request.name}" (${apiKey?.prefix}…), ${what}`);
    return secret;
  };
  const administer = [Permission.READ_ADMINISTRATIVE_DATA, Permission.WRITE_ADMINISTRATIVE_DATA];
  return {
    integrator: await create(
      { name: "Integrator", permissions: administer },
      "may list, create and delete webhooks",
    ),
    app: await create(
      { name: "Shipping Helper", permissions: administer, installedApplicationId: installedApp?.id },
      "the same, for the installed app",
    ),
    publisher: await create(
      { name: "Orders backend", permissions: [Permission.PUBLISH_EVENTS] },
      "may publish events",
    ),
  };
}

/** Deletes webhooks of an earlier demo, whose receivers no longer exist. */
export async function forgetEarlierWebhooks(url: string, key: string): Promise<void> {
  const { Data: webhooks } = await rest(url, key, "GET", "/api/webhook/list");
  for (const { Id } of webhooks as { Id: number }[])
    await rest(url, key, "DELETE", `/api/webhook?webhookId=${Id}`);
}

/** Registers five webhooks over REST. Returns their ids. */
export async function registerWebhooks(url: string, keys: DemoKeys, receivers: DemoReceivers) {
  let isFirst = true;
  async function register(key: string, process: number, target: string): Promise<bigint> {
    const body = JSON.stringify({ process, url: target });
    const answer = await rest(url, key, "POST", "/api/webhook", body);
    const { Id, WebhookProcess } = answer.Data as { Id: number; WebhookProcess: string };
    if (isFirst) {
      line(
        styleText(
          "dim",
          `curl ${url}/api/webhook -H 'X-Service-Key: …' -H 'Content-Type: application/json' -d '${body}'`,
        ),
      );
      line(styleText("dim", JSON.stringify(answer)));
      isFirst = false;
    }
    line(`webhook ${Id}: ${WebhookProcess} to ${target}`);
    return BigInt(Id);
  }
  return {
    good: [
      await register(keys.app, 1, `${receivers.good.url}/orders`),
      await register(keys.integrator, 2, `${receivers.good.url}/documents`),
      await register(keys.integrator, 3, `${receivers.good.url}/stock`),
    ],
    recovering: await register(keys.integrator, 1, `${receivers.recovering.url}/hooks`),
    failing: await register(keys.integrator, 1, `${receivers.failing.url}/hooks`),
  };
}

/** Publishes an event of each type, the first one twice. Returns the events' ids. */
export async function publishEvents(transport: Transport, key: string): Promise<string[]> {
  const client = createClient(EventService, transport);
  const run = Date.now();
  const publish = async (request: Parameters<typeof client.publishEvent>[0]) => {
    const answer = await client.publishEvent(request, { headers: { "X-Service-Key": key } });
    const told = answer.duplicate
      ? "a duplicate: nothing queued"
      : `queued for ${answer.deliveriesQueued} webhook${answer.deliveriesQueued === 1 ? "" : "s"}`;
    line(`${request.data?.case} "${request.idempotencyKey}" → event ${shortId(answer.eventId)}, ${told}`);
    return answer.eventId;
  };
  const order = {
    idempotencyKey: `order-${run}`,
    userId: "tenant-42",
    data: {
      case: "orderDispatched" as const,
      value: {
        orderId: 9_007_199_254_740_993n,
        orderNumber: "SO-1001",
        dispatchedAt: timestampNow(),
        carrier: "DHL",
        lines: [{ productId: 7n, sku: "LAMP-01", quantity: 2 }],
      },
    },
  };
  const orderEvent = await publish(order);
  await publish(order);
  return [
    orderEvent,
    await publish({
      idempotencyKey: `document-${run}`,
      userId: "tenant-42",
      data: {
        case: "documentCreated",
        value: {
          documentId: 501n,
          kind: DocumentKind.INVOICE,
          number: "INV-2001",
          createdAt: timestampNow(),
          currency: "EUR",
        },
      },
    }),
    await publish({
      idempotencyKey: `stock-${run}`,
      userId: "tenant-42",
      data: {
        case: "stockLevelChanged",
        value: {
          productId: 7n,
          sku: "LAMP-01",
          location: "Main",
          previousLevel: 12n,
          level: 10n,
          changedAt: timestampNow(),
        },
      },
    }),
  ];
}

async function rest(url: string, key: string, method: string, path: string, body?: string) {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { "X-Service-Key": key, ...(body ? { "Content-Type": "application/json" } : {}) },
    ...(body ? { body } : {}),
  });
  const answer = (await response.json()) as { Success: boolean; Data: unknown; Warnings: string[] };
  if (!answer.Success) throw new Error(`${method} ${path} failed: ${answer.Warnings.join("; ")}`);
  return answer;
}
