/** First attempts and retries have separate queues and separate shares of the limits. */
export type Kind = "first" | "retry";

/** Names the window of a webhook: its id, or that of the endpoint with whose webhooks it shares the window. */
export type WindowKey = bigint | string;

/** An attempt to send. */
export interface Task {
  readonly kind: Kind;
  readonly webhookId: bigint;
  /** Webhooks with the same key have the same host. */
  readonly window: WindowKey;
  readonly host: string;
}
