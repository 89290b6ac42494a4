import type { Webhook } from "../../../gen/webhook/v1/webhook_pb.ts";

/**
 * Whether the session can do anything with a webhook. For a key of an installed app, the list has other apps' webhooks
 * too, without the key that owns them: the page leaves these out.
 */
export function isReachable({ apiKeyId }: Webhook): boolean {
  return apiKeyId !== "";
}
