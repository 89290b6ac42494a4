/** Decides which addresses webhooks may be registered for. The API asks; delivery/target-url.ts answers. */
export interface TargetRules {
  /**
   * The address as it will be requested: normalised as the WHATWG URL standard says, final dot of the host stripped.
   *
   * @param customer the customer whose webhook requests it; null for the operator's
   * @throws InvalidTargetError
   */
  normalise(url: string, customer: string | null): string;
}

/**
 * Warnings about the host of a normalised address, such as that its name does not resolve, in sentences without a final period. Takes
 * about a second at most, and never rejects. The API asks; delivery/request/host-warnings.ts answers.
 *
 * @param customer the customer of the webhook; null for the operator's
 */
export type HostWarnings = (targetUrl: string, customer: string | null) => Promise<string[]>;

/** An address that no webhook can have; the message tells what to change. */
export class InvalidTargetError extends Error {
  override name = "InvalidTargetError";
}

/** A client of an authorization server, for the client credentials grant of OAuth 2.0 (RFC 6749, 4.4). */
export interface OAuth2Client {
  /** The token endpoint, normalised like a webhook's URL. */
  tokenUrl: string;
  clientId: string;
  clientSecret: string;
  /** Scopes, separated by spaces; null to ask for none. */
  scope: string | null;
  /** The parameter `audience`, which some servers need; null for none. */
  audience: string | null;
  /** Whether id and secret are sent in the body and not in the header Authorization. */
  secretInBody: boolean;
}

/** A client certificate with its private key. */
export interface ClientCertificate {
  /** PEM: the certificate, then intermediate ones. */
  certificate: string;
  /** PEM, not encrypted. */
  key: string;
}

/** The authentication of connections to a webhook's endpoint, beside the public authorities. */
export interface TlsSettings {
  /** Null for none. */
  client: ClientCertificate | null;
  /** PEM: the certificates of the only authorities that are trusted; null for the public ones. */
  authorities: string | null;
}

/** A test request. */
export interface TrialRequest {
  webhookId: bigint;
  /** The webhook's revision to which the credentials belong: no other host may get them. */
  revision: bigint;
  /** Custom headers and credentials: names and values in turn. */
  headers: readonly string[];
  /** Fetches an access token first; null without one. */
  oauth2: OAuth2Client | null;
  tls: TlsSettings | null;
  /** The body, JSON. */
  payload: string;
}

/** The maximum number of test requests in flight per process. */
export const MAX_TRIALS = 8;

/** The outcome of a test request. */
export interface TrialOutcome {
  /** Whether the endpoint answered 2xx in time. */
  accepted: boolean;
  status: number | null;
  error: string | null;
  responseStart: string | null;
  durationMs: number;
  /** Why it was not accepted, and what to do; null if it was. */
  cause: { code: string; summary: string; remedy: string } | null;
  /** The durations of its parts, in milliseconds, up to the part in which the request ended, as `timingOf` takes them. */
  timing: readonly number[];
  /** The addresses of the host; empty if it has none that are allowed, or a proxy resolves it. */
  addresses: readonly string[];
  /** The certificates of the server, also if they were not accepted: its own, then that of each issuer. */
  certificates: readonly TrialCertificate[];
}

/** A certificate of a server. */
export interface TrialCertificate {
  subject: string;
  issuer: string;
  notBefore: Date;
  notAfter: Date;
  /** The host names and addresses that it is for. */
  names: readonly string[];
}

/**
 * Sends one test request to a webhook, signed, under the rules for deliveries: the address guard, no redirects, the
 * timeout of an attempt. The API asks; delivery/request/trial.ts answers.
 *
 * @returns null if the webhook was deleted or has another revision; nothing is sent
 */
export type RequestTrial = (request: TrialRequest) => Promise<TrialOutcome | null>;
