import type { HandlerContext } from "@connectrpc/connect";
import { isByTls } from "../../calls/index.ts";
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

const tokenIn = (name: string) => new RegExp(`(?:^|;\\s*)${name}=([\\w-]{43})(?=\\s*(?:;|$))`);
const TOKEN = tokenIn(SESSION_COOKIE);
const SECURE_TOKEN = tokenIn(SECURE_SESSION_COOKIE);

/** Whether the admin UI sent the request, judged by headers that only browsers set and pages cannot change. */
export function isFromPage(handler: HandlerContext): boolean {
  const { requestHeader: header } = handler;
  if (header.get(PAGE_HEADER) === null) return false;
  const site = header.get("Sec-Fetch-Site");
  // Browsers omit this header for pages loaded over plain HTTP from another machine.
  return site === null ? originIsOurs(handler) : site === "same-origin";
}

/** The token in the request's cookie; null if there is none, or another page may have sent the request. */
export function sessionToken(handler: HandlerContext): string | null {
  const pattern = isByTls(handler) ? SECURE_TOKEN : TOKEN;
  const token = pattern.exec(handler.requestHeader.get("Cookie") ?? "")?.[1];
  return token !== undefined && isFromPage(handler) ? token : null;
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
  const attributes = `Path=/; Max-Age=${maxAge}; HttpOnly; SameSite=Strict`;
  // Browsers reject Secure cookies over plain HTTP.
  return isByTls(handler)
    ? `${SECURE_SESSION_COOKIE}=${value}; ${attributes}; Secure`
    : `${SESSION_COOKIE}=${value}; ${attributes}`;
}

function originIsOurs(handler: HandlerContext): boolean {
  const origin = hostOf(handler.requestHeader.get("Origin") ?? "");
  return origin !== null && origin.host === hostOf(handler.url)?.host;
}

function hostOf(url: string): URL | null {
  return URL.parse(url);
}
