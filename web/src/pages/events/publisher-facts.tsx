import type { Event } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { isNotice } from "../../../../src/contract/catalogue.ts";
import type { Fact } from "../../parts/layout/facts.tsx";

/** The user and the publisher of an event, as far as the session may see them. */
export function publisherFacts(event: Event | undefined): (Fact | false)[] {
  if (!event) return [];
  const { userId, test, apiKeyId, apiKeyName, idempotencyKey } = event;
  const by = apiKeyName ?? (apiKeyId === undefined ? undefined : `a removed key, ${apiKeyId}`);
  return [
    ["User", userId],
    isNotice(event.process) && !test && ["Published by", "the service itself"],
    by !== undefined && [test ? "Test event by" : "Published by", by],
    idempotencyKey !== undefined && ["Idempotency key", idempotencyKey],
  ];
}
