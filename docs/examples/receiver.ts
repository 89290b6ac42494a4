// A receiver in TypeScript. It needs the package `standardwebhooks`, and a proxy that terminates TLS.
// WEBHOOK_SECRET is the webhook's secret from GetWebhookSecret: whsec_…
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");
// In memory for this example. Store the ids where you store the results of the events.
const handled = new Set<string>();

const server = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  // The raw body. Parsed and serialized again, it can have other bytes, which the signature does not match.
  const body = Buffer.concat(chunks).toString();
  let event: unknown;
  try {
    event = webhook.verify(body, request.headers as Record<string, string>);
  } catch {
    response.writeHead(400).end();
    return;
  }
  const id = String(request.headers["x-service-webhook-id"]);
  if (!handled.has(id)) {
    console.log(request.headers["x-service-webhook-process"], event);
    handled.add(id);
  }
  response.writeHead(204).end();
});

server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log("listening on", (server.address() as { port: number }).port);
});
