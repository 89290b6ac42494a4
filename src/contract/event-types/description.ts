import { WebhookProcessSchema } from "../../../gen/webhook/v1/event_pb.ts";
import type { CatalogueEntry } from "../catalogue.ts";
import { commentOf } from "../comments.ts";

/** What an event type describes, in words. Empty if its proto file does not say. */
export function descriptionOf({ number, payload }: CatalogueEntry): string {
  const member = WebhookProcessSchema.values.find((value) => value.number === number);
  return (member && commentOf(member)) ?? commentOf(payload) ?? "";
}
