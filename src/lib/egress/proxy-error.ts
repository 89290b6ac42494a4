/**
 * Thrown if the outbound proxy itself cannot be used: not reachable, or its credentials are wrong. Nothing was sent, and
 * nothing is known about the receiver. The message names neither the proxy's address nor its credentials.
 */
export class ProxyUnavailableError extends Error {
  readonly code = "PROXY_UNAVAILABLE";
  override name = "ProxyUnavailableError";
  readonly reason: string;

  constructor(reason: string) {
    super(`the outbound proxy is unavailable: ${reason}`);
    this.reason = reason;
  }
}

/**
 * Thrown if the outbound proxy opens no connection to one receiver. Nothing was sent. Counts as an attempt: a receiver could
 * cause it, and would otherwise stop all deliveries.
 */
export class ProxyRefusedError extends Error {
  readonly code = "PROXY_REFUSED";
  override name = "ProxyRefusedError";
  /** `host` and `host timeout` if the proxy could not reach the receiver; `proxy` for all other reasons. */
  readonly failure: "proxy" | "host" | "host timeout";
  /** Whether the receiver's next address may have another result. */
  readonly mayTryNext: boolean;

  constructor(
    reason: string,
    failure: ProxyRefusedError["failure"] = "proxy",
    mayTryNext = failure === "host",
  ) {
    super(`outbound proxy: ${reason}`);
    this.failure = failure;
    this.mayTryNext = mayTryNext;
  }
}
