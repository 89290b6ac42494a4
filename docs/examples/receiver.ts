// A receiver in TypeScript. It needs the package `standardwebhooks`, and in front of it whatever ends TLS for you.
// WEBHOOK_SECRET is what GetWebhookSecret tells of the webhook: whsec_…
import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");
// In memory for the example; keep the ids where you keep what you make of the events.
const handled = new Set<string>();

const server = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  // The body as it came: parsed and written anew it would be other bytes, with another signature.
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
