import { credentials, loadPackageDefinition, Metadata } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const {
  WEBHOOK_GRPC = "localhost:9090",
  WEBHOOK_KEY = "",
  PROTO_DIRS = "proto:node_modules/protobufjs",
} = process.env;
const files = ["webhook/v1/event.proto", "webhook/v1/webhook.proto"];
const options = { includeDirs: PROTO_DIRS.split(":"), longs: String, arrays: true };
const { webhook } = loadPackageDefinition(loadSync(files, options));

const metadata = new Metadata();
metadata.set("X-Service-Key", WEBHOOK_KEY);

/** Calls a method, with a deadline of five seconds. */
function call(Service, method, request) {
  const client = new Service(WEBHOOK_GRPC, credentials.createInsecure());
  return new Promise((resolve, reject) => {
    client[method](request, metadata, { deadline: Date.now() + 5_000 }, (error, answer) => {
      client.close();
      if (error) reject(error);
      else resolve(answer);
    });
  });
}

const published = await call(webhook.v1.EventService, "PublishEvent", {
  idempotencyKey: "grpc-js-1001",
  userId: "tenant-42",
  orderDispatched: { orderId: 1001, orderNumber: "SO-1001", dispatchedAt: { seconds: 1_795_253_400 } },
});
console.log(`published ${published.eventId}`);

const { webhooks } = await call(webhook.v1.WebhookService, "ListWebhooks", {});
for (const { id, url } of webhooks) console.log(`webhook ${id} ${url}`);
