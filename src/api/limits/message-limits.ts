import type { DescMethod } from "@bufbuild/protobuf";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../../gen/webhook/v1/event_type_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { DomainError } from "../../contract/errors.ts";
import { isPublic } from "../../keys/gate/index.ts";

const KIB = 1_024;

/** The maximum size of one request message, uncompressed, in bytes, of methods that need a key. */
const DEFAULT_MAX_BYTES = 64 * KIB;
/** The same for methods that anyone may call. */
const PUBLIC_MAX_BYTES = 8 * KIB;
/**
 * The same for the methods that carry payloads or certificates. A payload has at most 256 KiB as the JSON that receivers get, and request
 * settings have up to 1 MiB of certificates and 350 KiB of headers. A request in JSON can be larger, because a caller may escape
 * characters that the service writes as they are.
 */
const LARGE_MAX_BYTES: ReadonlyMap<DescMethod, number> = new Map<DescMethod, number>([
  [WebhookService.method.sendTestEvent, 1_024 * KIB],
  [WebhookService.method.setWebhookRequestSettings, 2_048 * KIB],
  [WebhookService.method.tryWebhookRequest, 2_048 * KIB],
  [WebhookService.method.updateWebhook, 2_048 * KIB],
  [EventService.method.publishEvent, 1_024 * KIB],
  [EventService.method.publishEvents, 4 * 1_024 * KIB],
  [EventService.method.publishEventBatch, 4 * 1_024 * KIB],
  // A set of 16 MiB, in JSON as base64.
  [EventTypeService.method.registerEventTypes, 22 * 1_024 * KIB],
]);

/** Whether one message of a method is larger than the memory for the messages of all others. */
export function isHuge(method: DescMethod): boolean {
  return messageLimits(method).maxBytes > 4 * 1_024 * KIB;
}

/** The limits of one method's request messages. */
export interface MessageLimits {
  /** The maximum size of one message, uncompressed, in bytes. */
  maxBytes: number;
  /** Whether requests may be compressed. False for methods that anyone may call. */
  compression: boolean;
}

/** The limits of a method's request messages. */
export function messageLimits(method: DescMethod): MessageLimits {
  if (isPublic(method)) return { maxBytes: PUBLIC_MAX_BYTES, compression: false };
  return { maxBytes: LARGE_MAX_BYTES.get(method) ?? DEFAULT_MAX_BYTES, compression: true };
}

/** The error for a message above its limit. Without a delay: sent again, it is as large. Over HTTP, its status is 413. */
export function messageTooLarge(maxBytes: number): DomainError {
  return new DomainError(
    "MESSAGE_TOO_LARGE",
    `a message of this method may have at most ${maxBytes} bytes, uncompressed; send less at once`,
  );
}
