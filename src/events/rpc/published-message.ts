import type { MessageInitShape } from "@bufbuild/protobuf";
import type { PublishEventResponseSchema } from "../../../gen/webhook/v1/event_pb.ts";
import type { Published } from "../publish.ts";

/** The response for a stored event. */
export function publishedMessage(published: Published): MessageInitShape<typeof PublishEventResponseSchema> {
  return {
    eventId: published.eventId,
    deliveriesQueued: published.queued,
    duplicate: published.duplicate,
  };
}
