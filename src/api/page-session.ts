import type { HandlerContext } from "@connectrpc/connect";
import { SESSION_MOST_SECONDS } from "../db/sessions.ts";

/** A header that no form and no link can send, and that other origins' scripts may not: we allow them nothing. */
export const PAGE_HEADER = "X-Settings-Page";
/** The cookie of a session. */
export const SESSION_COOKIE = "webhook_session";

const TOKEN = new RegExp(`(?:^|;\\s*)${SESSION_COOKIE}=([\\w-]{43})(?=\\s*(?:;|$))`);

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
  const token = TOKEN.exec(handler.requestHeader.get("Cookie") ?? "")?.[1];
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
  const host = hostOf(handler.url)?.hostname ?? "";
  const local = host === "localhost" || host === "127.0.0.1" || host === "[::1]";
  const secure = local ? "" : "; Secure";
  return `${SESSION_COOKIE}=${value}; Path=/; Max-Age=${maxAge}; HttpOnly; SameSite=Strict${secure}`;
}

function originIsOurs(handler: HandlerContext): boolean {
  const origin = hostOf(handler.requestHeader.get("Origin") ?? "");
  return origin !== null && origin.host === hostOf(handler.url)?.host;
}

function hostOf(url: string): URL | null {
  return URL.parse(url);
}
