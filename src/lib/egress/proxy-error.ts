/**
 * Thrown if the outbound proxy itself cannot be used: unreachable, another protocol, or wrong credentials. No request was sent,
 * and nothing is known about the target. The message contains neither the proxy's address nor its credentials.
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

const CHECK_RECEIVER = "check that the receiver runs, and that the proxy can reach it";
/** The remedies, by failure. */
const REMEDIES = {
  proxy: "the operator of this service must check the proxy's rules and log",
  host: CHECK_RECEIVER,
  "host timeout": CHECK_RECEIVER,
};

/**
 * Thrown if the outbound proxy opens no connection to one target. No request was sent. The proxy still counts as available:
 * a target can cause this error, and would otherwise stop the requests to all targets.
 */
export class ProxyRefusedError extends Error {
  readonly code = "PROXY_REFUSED";
  override name = "ProxyRefusedError";
  /** `host`: the proxy could not reach the target. `host timeout`: not in time. `proxy`: any other reason, such as its rules. */
  readonly failure: "proxy" | "host" | "host timeout";
  /** Whether another address of the target may succeed. Defaults to true for `host`, false otherwise. */
  readonly mayTryNext: boolean;

  constructor(
    reason: string,
    failure: ProxyRefusedError["failure"] = "proxy",
    mayTryNext = failure === "host",
    remedy = REMEDIES[failure],
  ) {
    super(`outbound proxy: ${reason}; ${remedy}`);
    this.failure = failure;
    this.mayTryNext = mayTryNext;
  }
}
