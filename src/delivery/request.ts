import { processName } from "../catalogue.ts";
import type { ClaimedDelivery } from "../db/claim-statement.ts";
import type { Signer } from "./signature.ts";
import { parseTarget } from "./target.ts";

/** Who we are to receivers. */
const USER_AGENT = "Webhook-Service/1";

/** One POST as it goes out: the contract's headers (6.2), the event's name, and the signature, made anew each time. */
export function buildRequest(
  delivery: ClaimedDelivery,
  body: string,
  sign: Signer,
): { origin: string; path: string; headers: string[]; body: string } {
  const { origin, path } = parseTarget(delivery.targetUrl);
  const signature = sign(delivery.sealedSecret, delivery.id, new Date(), body);
  const headers = [
    "Content-Type",
    "application/json; charset=utf-8",
    "User-Agent",
    USER_AGENT,
    "Accept-Encoding",
    "identity",
    "X-Service-Webhook-Id",
    delivery.id,
    "X-Service-Webhook-Process",
    processName(delivery.process),
  ];
  if (delivery.installedAppId !== null) headers.push("X-Service-UserId", delivery.userId);
  for (const [name, value] of Object.entries(signature)) headers.push(name, value);
  return { origin, path, headers, body };
}
