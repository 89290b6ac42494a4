import { createGrpcTransport } from "@connectrpc/connect-node";
import { createWebhookClients, withApiKey } from "@webhook-service/client";

const { WEBHOOK_GRPC = "localhost:9090", WEBHOOK_KEY = "" } = process.env;
const { events, webhooks } = createWebhookClients(
  createGrpcTransport({
    baseUrl: `http://${WEBHOOK_GRPC}`,
    interceptors: [withApiKey(WEBHOOK_KEY)],
    defaultTimeoutMs: 5_000,
  }),
);

const published = await events.publishEvent({
  idempotencyKey: "connect-1001",
  userId: "tenant-42",
  data: {
    case: "orderDispatched",
    value: { orderId: 1001n, orderNumber: "SO-1001", dispatchedAt: { seconds: 1_795_253_400n } },
  },
});
console.log(`published ${published.eventId}`);

const { webhooks: registered } = await webhooks.listWebhooks({});
for (const { id, url } of registered) console.log(`webhook ${id} ${url}`);
