/** First attempts and retries have separate queues and separate shares of the limits. */
export type Kind = "first" | "retry";

/** The key of a webhook's window: the webhook's id, or the id of its endpoint, whose webhooks share one window. */
export type WindowKey = bigint | string;

/** A delivery to attempt, as the scheduler sees it. */
export interface Task {
  readonly kind: Kind;
  readonly webhookId: bigint;
  /** Webhooks with the same key have the same host. */
  readonly window: WindowKey;
  readonly host: string;
}
