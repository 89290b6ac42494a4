import type { MessageInitShape } from "@bufbuild/protobuf";
import type { PublishEventResponseSchema } from "../../../gen/webhook/v1/event_pb.ts";
import type { ApiKeyRow } from "../../calls/index.ts";
import type { Published } from "../publish.ts";

/** The response for a stored event. A customer does not learn of the operator's webhooks, which are recipients, too. */
export function publishedMessage(
  published: Published,
  { customer }: Pick<ApiKeyRow, "customer">,
): MessageInitShape<typeof PublishEventResponseSchema> {
  return {
    eventId: published.eventId,
    deliveriesQueued: customer === null ? published.queued : 0,
    duplicate: published.duplicate,
  };
}
