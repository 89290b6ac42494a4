/** The reason why a host name has no addresses. The message is stored in the attempt record and shown to users. */
export class LookupError extends Error {
  readonly code = "LOOKUP_FAILED";
  override name = "LookupError";
}

/** Messages by c-ares error code; `%` is replaced by the name. */
const REASONS: Record<string, string> = {
  ENOTFOUND: "host name does not resolve: % does not exist (NXDOMAIN)",
  ENODATA: "host name does not resolve: % has no A or AAAA record (empty DNS answer)",
  EBADNAME: "host name does not resolve: % is not a valid DNS name",
  ESERVFAIL: "host name could not be looked up: the DNS server failed for % (SERVFAIL)",
  EREFUSED: "host name could not be looked up: the DNS server refused the query for % (REFUSED)",
  ECONNREFUSED: "host name could not be looked up: no DNS server can be reached for %",
};

/** The error of a lookup that ended with this code of c-ares. */
export function lookupError(name: string, code: string): LookupError {
  const reason = REASONS[code] ?? `host name could not be looked up: % (${code})`;
  return new LookupError(reason.replace("%", name));
}
