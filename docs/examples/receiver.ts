// A receiver in TypeScript, for Node 22.18 or later. It needs the package `standardwebhooks`.
// WEBHOOK_SECRET is the webhook's secret from GetWebhookSecret: whsec_…
// TLS_CERT and TLS_KEY name the certificate chain and its key; `npm run receiver -- --certificate` makes some for a try on one
// machine. Without them it speaks HTTP, for use behind a proxy that terminates TLS.
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { Webhook } from "standardwebhooks";

const webhook = new Webhook(process.env.WEBHOOK_SECRET ?? "");
/** More than any delivery has, in bytes. */
const MAX_BODY_BYTES = 1_048_576;
// In memory for this example. Store the ids where you store the results of the events.
const handled = new Set<string>();

/** The raw body. Parsed and serialized again, it can have other bytes, which the signature does not match. */
async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) throw new Error("the body is too large");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

const receive: RequestListener = async (request, response) => {
  let event: unknown;
  try {
    event = webhook.verify(await readBody(request), request.headers as Record<string, string>);
  } catch {
    // Not signed by the service, too large, or the sender disconnected.
    response.writeHead(400).end();
    return;
  }
  const id = String(request.headers["x-service-webhook-id"]);
  if (!handled.has(id)) {
    console.log(request.headers["x-service-webhook-process"], event);
    handled.add(id);
  }
  response.writeHead(204).end();
};

const { TLS_CERT, TLS_KEY } = process.env;
const server =
  TLS_CERT && TLS_KEY
    ? createTlsServer({ cert: readFileSync(TLS_CERT), key: readFileSync(TLS_KEY) }, receive)
    : createServer(receive);
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log("listening on", (server.address() as { port: number }).port);
});
