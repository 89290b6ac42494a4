/** The reason why a host name has no addresses. The message is stored in the attempt record and shown to users. */
export class LookupError extends Error {
  readonly code = "LOOKUP_FAILED";
  override name = "LookupError";
  /** Whether to cache the error, because a new lookup would most likely fail in the same way. */
  readonly cacheable: boolean;

  constructor(message: string, { cacheable }: { cacheable: boolean }) {
    super(message);
    this.cacheable = cacheable;
  }
}

/** Messages by c-ares error code; `%` is replaced by the name. */
const REASONS: Record<string, { message: string; cacheable: boolean }> = {
  ENOTFOUND: { message: "host name does not resolve: % does not exist (NXDOMAIN)", cacheable: true },
  ENODATA: {
    message: "host name does not resolve: % has no A or AAAA record (empty DNS answer)",
    cacheable: true,
  },
  EBADNAME: { message: "host name does not resolve: % is not a valid DNS name", cacheable: true },
  ESERVFAIL: {
    message: "host name could not be looked up: the DNS server failed for % (SERVFAIL)",
    cacheable: true,
  },
  EREFUSED: {
    message: "host name could not be looked up: the DNS server refused the query for % (REFUSED)",
    cacheable: true,
  },
  ECONNREFUSED: {
    message: "host name could not be looked up: no DNS server can be reached for %",
    cacheable: false,
  },
};

/** The error of a lookup that c-ares ended with this code. */
export function lookupError(name: string, code: string): LookupError {
  const known = REASONS[code];
  const message = known?.message.replace("%", name) ?? `host name could not be looked up: ${name} (${code})`;
  return new LookupError(message, { cacheable: known?.cacheable ?? false });
}

/** The error of a lookup that took too long. */
export function lookupTimeout(name: string, timeoutMs: number): LookupError {
  return new LookupError(`DNS lookup of ${name} timed out after ${timeoutMs / 1_000} s`, { cacheable: true });
}
