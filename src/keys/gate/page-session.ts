import type { HandlerContext } from "@connectrpc/connect";
import { type PublicAddress, publicAddressOf } from "../../calls/index.ts";
import { MAX_SESSION_SECONDS } from "../sessions.ts";

/**
 * A header that neither forms nor links can send, and that scripts of other origins may not send, because CORS is not
 * enabled.
 */
export const PAGE_HEADER = "X-Settings-Page";
/** The name of the session cookie. */
export const SESSION_COOKIE = "webhook_session";
/**
 * The name of the session cookie over TLS. Browsers accept the `__Host-` prefix only over TLS and from this host, so
 * that neither another host of the domain nor an attacker on a plain connection can set a session.
 */
export const SECURE_SESSION_COOKIE = `__Host-${SESSION_COOKIE}`;
/** The same below a path prefix. Browsers accept `__Host-` for the root only, whose cookies other applications of the host would get. */
export const PREFIXED_SESSION_COOKIE = `__Secure-${SESSION_COOKIE}`;

/** The maximum length of a header that an error repeats, in characters. */
const MAX_SHOWN = 100;

const NAMES = [SESSION_COOKIE, SECURE_SESSION_COOKIE, PREFIXED_SESSION_COOKIE];
const TOKENS = new Map(
  NAMES.map((name) => [name, new RegExp(`(?:^|;\\s*)${name}=([\\w-]{43})(?=\\s*(?:;|$))`)]),
);

/** Whether the admin UI sent the request, judged by headers that only browsers set and pages cannot change. */
export function isFromPage(handler: HandlerContext): boolean {
  const { requestHeader: header } = handler;
  if (header.get(PAGE_HEADER) === null) return false;
  const site = header.get("Sec-Fetch-Site");
  // Browsers omit this header for pages loaded over plain HTTP from another machine.
  return site === null ? originIsOurs(handler) : site === "same-origin";
}

/**
 * Says which header of a proxy prevents that the admin UI is recognized or gets its cookie, and what to set instead. Null if none does.
 */
export function wrongProxyHeader(handler: HandlerContext): string | null {
  const { requestHeader: header } = handler;
  const origin = originOf(handler);
  if (header.get(PAGE_HEADER) === null || !origin?.host) return null;
  const { isTls, host, isForwarded } = publicAddressOf(handler);
  const opened = `but the browser opened ${shown(origin.origin)}`;
  // Browsers accept Secure cookies over plain HTTP from their own machine only.
  if (
    isTls &&
    origin.protocol === "http:" &&
    !/^(?:(?:.+\.)?localhost|127\.[\d.]+|\[::1\])$/.test(origin.hostname)
  )
    return `X-Forwarded-Proto is https, ${opened} and would reject the session's Secure cookie: let the proxy set X-Forwarded-Proto to the scheme of the browser's request, or open the page by https`;
  if (header.has("Sec-Fetch-Site") || originIsOurs(handler)) return null;
  if (isForwarded && header.has("X-Forwarded-Host"))
    return `X-Forwarded-Host is ${shown(host)}, ${opened}: let the proxy set X-Forwarded-Host to the Host of the browser's request, ${shown(origin.host)}`;
  const trusted = isForwarded ? "" : " and add the proxy's address to TRUST_PROXY";
  return `Host is ${shown(host)}, ${opened}: let the proxy pass on the Host of the browser's request, or set X-Forwarded-Host to it${trusted}`;
}

/** The token in the request's cookie; null if there is none, or another page may have sent the request. */
export function sessionToken(handler: HandlerContext): string | null {
  const cookies = handler.requestHeader.get("Cookie");
  if (cookies === null) return null;
  const token = TOKENS.get(cookieName(publicAddressOf(handler)))?.exec(cookies)?.[1];
  return token !== undefined && isFromPage(handler) ? token : null;
}

/** The session token in a Cookie header, whoever sent the request: for pages that only read. Null if there is none. */
export function sessionIn(cookies: string): string | null {
  for (const name of NAMES) {
    const token = TOKENS.get(name)?.exec(cookies)?.[1];
    if (token !== undefined) return token;
  }
  return null;
}

/** The Set-Cookie header of a new session. */
export function sessionCookie(handler: HandlerContext, token: string): string {
  return cookie(handler, token, MAX_SESSION_SECONDS);
}

/** The Set-Cookie header that removes a session. */
export function noSessionCookie(handler: HandlerContext): string {
  return cookie(handler, "", 0);
}

function cookie(handler: HandlerContext, value: string, maxAge: number): string {
  const address = publicAddressOf(handler);
  const attributes = `Path=${address.basePath || "/"}; Max-Age=${maxAge}; HttpOnly; SameSite=Strict`;
  // Browsers reject Secure cookies over plain HTTP.
  return `${cookieName(address)}=${value}; ${attributes}${address.isTls ? "; Secure" : ""}`;
}

function cookieName({ isTls, basePath }: PublicAddress): string {
  if (!isTls) return SESSION_COOKIE;
  return basePath === "" ? SECURE_SESSION_COOKIE : PREFIXED_SESSION_COOKIE;
}

function originIsOurs(handler: HandlerContext): boolean {
  const { isTls, host } = publicAddressOf(handler);
  const origin = originOf(handler);
  return origin !== null && origin.host === URL.parse(`${isTls ? "https" : "http"}://${host}`)?.host;
}

function originOf({ requestHeader }: HandlerContext): URL | null {
  return URL.parse(requestHeader.get("Origin") ?? "");
}

function shown(text: string): string {
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
}
