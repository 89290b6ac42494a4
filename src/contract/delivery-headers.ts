import { processName } from "./catalogue.ts";

/** Who we are to receivers. */
const USER_AGENT = "Webhook-Service/1";

/** What the headers of a delivery tell of it. */
export interface DeliveryFacts {
  id: string;
  /** Number of the WebhookProcess. */
  process: number;
  /** Set when the webhook was registered by an installed app. */
  installedAppId: string | null;
  userId: string;
  /** Made up to test the webhook. */
  test?: boolean | undefined;
}

/** The headers of every attempt of a delivery, but for its signature: names and values in turn (contract, 6.2). */
export function deliveryHeaders({ id, process, installedAppId, userId, test }: DeliveryFacts): string[] {
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
    processName(process),
  ];
  if (installedAppId !== null) headers.push("X-Service-UserId", userId);
  if (test) headers.push("X-Service-Webhook-Test", "true");
  return headers;
}
