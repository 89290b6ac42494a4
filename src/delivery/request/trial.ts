import { randomUUID } from "node:crypto";
import { DomainError } from "../../contract/errors.ts";
import type { RequestTrial } from "../../contract/target-rules.ts";
import type { Db } from "../../db/database.ts";
import { ClaimedWebhooks } from "../../db/queue/webhooks.ts";
import type { SecretBox } from "../../db/webhooks/secret-box.ts";
import { createHttpClient } from "../http/http-client.ts";
import type { AddressGuard } from "./address-guard.ts";
import type { Outcome } from "./outcome.ts";
import { post } from "./post.ts";
import { buildRequest } from "./request.ts";
import { createSigner } from "./signature.ts";

/** The maximum number of test requests in flight per process. */
const MAX_TRIALS = 8;
/** The value of X-Service-UserId, for webhooks that get this header. */
const USER_ID = "test";
const RETRY_AFTER_MS = 1_000;

/** Creates what sends test requests from the API's process. Its client shares no connection with deliveries. */
export function createRequestTrial(options: {
  db: Db;
  secrets: SecretBox;
  guard: AddressGuard;
  /** The timeout of an attempt, in milliseconds. */
  timeoutMs: number;
}): { send: RequestTrial; close(): Promise<void> } {
  const { db, secrets, guard, timeoutMs } = options;
  const client = createHttpClient(guard, MAX_TRIALS);
  const sign = createSigner(secrets);
  const webhooks = new ClaimedWebhooks();
  let inFlight = 0;

  const send: RequestTrial = async ({ webhookId, headers, payload }) => {
    if (inFlight >= MAX_TRIALS) {
      throw new DomainError(
        "RESOURCE_EXHAUSTED",
        `${MAX_TRIALS} test requests are in flight, the maximum; retry when one has ended`,
        { retryAfterMs: RETRY_AFTER_MS },
      );
    }
    inFlight += 1;
    try {
      const webhook = (await webhooks.load(db, new Set([webhookId]))).get(webhookId);
      if (!webhook) return null;
      const { requestSettings: _stored, ...plain } = webhook;
      const content = { payload, userId: USER_ID, test: true };
      const request = buildRequest({ id: randomUUID(), webhook: plain }, content, sign, () => []);
      request.headers.push(...headers);
      const { delivered, status, error, responseStart, durationMs } = await new Promise<Outcome>((resolve) =>
        post(client, request, timeoutMs, resolve),
      );
      return { accepted: delivered, status, error, responseStart, durationMs };
    } finally {
      inFlight -= 1;
    }
  };
  return { send, close: () => client.destroy() };
}
