import { processName } from "../catalogue.ts";
import type { ClaimedDelivery } from "../db/claim-statement.ts";
import type { EventContent } from "../db/event-contents.ts";
import { SIGNATURE_HEADERS, type Signer } from "./signature.ts";
import { parseTarget } from "./target.ts";

/** Who we are to receivers. */
const USER_AGENT = "Webhook-Service/1";

/** One POST as it goes out: the contract's headers (6.2), the event's name, and the signature, made anew each time. */
export function buildRequest(
  { id, webhook }: Pick<ClaimedDelivery, "id" | "webhook">,
  { payload: body, userId, test }: EventContent,
  sign: Signer,
): { origin: string; path: string; headers: string[]; body: string } {
  const { origin, path } = parseTarget(webhook.targetUrl);
  const signature = sign(webhook.secrets, id, new Date(), body);
  const headers = [
    "Content-Type",
    "application/json; charset=utf-8",
    "User-Agent",
    USER_AGENT,
    "Accept-Encoding",
    "identity",
    "X-Service-Webhook-Id",
    id,
    "X-Service-Webhook-Process",
    processName(webhook.process),
  ];
  if (webhook.installedAppId !== null) headers.push("X-Service-UserId", userId);
  if (test) headers.push("X-Service-Webhook-Test", "true");
  for (const name of SIGNATURE_HEADERS) headers.push(name, signature[name]);
  return { origin, path, headers, body };
}
