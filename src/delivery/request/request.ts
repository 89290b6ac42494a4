import { deliveryHeaders } from "../../contract/delivery-headers.ts";
import type { ClaimedDelivery, EventContent } from "../../queue/index.ts";
import type { Additions } from "./additions.ts";
import { NotBuiltError } from "./not-built.ts";
import { SIGNATURE_HEADERS, type Signer } from "./signature.ts";

/** The POST of an attempt. */
export interface SignedRequest extends Omit<Additions, "headers"> {
  origin: string;
  path: string;
  /** Header names and values, alternating. */
  headers: string[];
  body: string;
  /** The time in webhook-timestamp, which is the start of the attempt. */
  signed: Date;
  /** The value of webhook-signature. */
  signature: string;
  /** The trace that the event belongs to; null without one. */
  traceparent: string | null;
  /** The webhook's own timeout, in milliseconds, if it has one. */
  timeoutMs?: number | null;
}

/** Builds the POST of an attempt: the headers of docs/contract.md, 6.2, a new signature, and what the webhook's settings add. */
export function buildRequest(
  { id, webhook }: Pick<ClaimedDelivery, "id" | "webhook">,
  { payload: body, damage, userId, process = webhook.process, test, traceparent = null }: EventContent,
  sign: Signer,
  { headers: added, ...additions }: Additions,
): SignedRequest {
  if (damage)
    throw new NotBuiltError("PostgreSQL cannot read the event; see the service's log", { cause: damage });
  if (body === null) throw new NotBuiltError("the event's payload was erased, or the event is not stored");
  const { origin, path } = webhook.target;
  const signed = new Date();
  const signature = sign(webhook.secrets, id, signed, body, webhook);
  const facts = { id, process, installedAppId: webhook.installedAppId, userId, test };
  const headers = deliveryHeaders(facts, added);
  for (const name of SIGNATURE_HEADERS) headers.push(name, signature[name]);
  if (signature.second) headers.push(...signature.second);
  headers.push(...added);
  return {
    origin,
    path,
    headers,
    body,
    signed,
    signature: signature["webhook-signature"],
    traceparent,
    timeoutMs: webhook.timeoutMs ?? null,
    ...additions,
  };
}
