import type { HandlerContext } from "@connectrpc/connect";
import { SESSION_MOST_SECONDS } from "../../db/keys/sessions.ts";
import { isByTls } from "./client-address.ts";

/** A header that no form and no link can send, and that other origins' scripts may not: we allow them nothing. */
export const PAGE_HEADER = "X-Settings-Page";
/** The cookie of a session. */
export const SESSION_COOKIE = "webhook_session";
/**
 * Its name over TLS. A browser takes a cookie of this prefix only over TLS and from this host itself, so neither another
 * host of the domain nor somebody on the way of a plain connection can plant a session.
 */
export const SECURE_SESSION_COOKIE = `__Host-${SESSION_COOKIE}`;

const tokenIn = (name: string) => new RegExp(`(?:^|;\\s*)${name}=([\\w-]{43})(?=\\s*(?:;|$))`);
const TOKEN = tokenIn(SESSION_COOKIE);
const SECURE_TOKEN = tokenIn(SECURE_SESSION_COOKIE);

/** Whether the service's own page made the request, going by what only browsers can say and pages cannot change. */
export function isFromPage(handler: HandlerContext): boolean {
  const { requestHeader: header } = handler;
  if (header.get(PAGE_HEADER) === null) return false;
  const site = header.get("Sec-Fetch-Site");
  // Browsers leave it out where a page came over plain HTTP from elsewhere than this machine.
  return site === null ? originIsOurs(handler) : site === "same-origin";
}

/** The token that the request's cookie holds; null without one, and where another page may have made the request. */
export function sessionToken(handler: HandlerContext): string | null {
  const pattern = isByTls(handler) ? SECURE_TOKEN : TOKEN;
  const token = pattern.exec(handler.requestHeader.get("Cookie") ?? "")?.[1];
  return token !== undefined && isFromPage(handler) ? token : null;
}

/** Set-Cookie for a session that begins. */
export function sessionCookie(handler: HandlerContext, token: string): string {
  return cookie(handler, token, SESSION_MOST_SECONDS);
}

/** Set-Cookie for a session that is over. */
export function noSessionCookie(handler: HandlerContext): string {
  return cookie(handler, "", 0);
}

function cookie(handler: HandlerContext, value: string, maxAge: number): string {
  const attributes = `Path=/; Max-Age=${maxAge}; HttpOnly; SameSite=Strict`;
  // Over plain HTTP browsers would not take a Secure one.
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
