import { isUuid, searchWords } from "../calls/index.ts";

/** The values that a search compares, besides user ids, idempotency keys, searchable values and names of webhooks. */
export interface SearchText {
  /** Trimmed, not empty. */
  text: string;
  /** Set if it is a UUID, in lower case: the id of a delivery or an event. */
  uuid?: string | undefined;
  /** Set if it is the number of a webhook. */
  webhookId?: bigint | undefined;
  /** The host of a webhook, with or without a port, normalised as in URLs. */
  host?: string | undefined;
  /** The start of a webhook's URL, normalised. */
  url?: string | undefined;
}

/**
 * Texts that contain a URL's user info or fragment, which webhooks' URLs do not have. Otherwise, an e-mail address would
 * mean its host.
 */
const USER_INFO_OR_FRAGMENT = /^(https:)?[/\\]*[^/\\?]*@|#/i;
/** The maximum id of a webhook. */
const MAX_WEBHOOK_ID = 2n ** 63n - 1n;
/** The maximum number of words that are searched for one by one. */
const MAX_WORDS = 5;
/** The minimum length of a part of a webhook's name, in characters. */
const MIN_NAME_PART = 2;

/** The possible meanings of a text. @param text trimmed, not empty */
export function meaningsOf(text: string): SearchText {
  const [, digits] = /^#?(\d{1,19})$/.exec(text) ?? [];
  const webhookId = digits === undefined || BigInt(digits) > MAX_WEBHOOK_ID ? undefined : BigInt(digits);
  const isUrl = digits === undefined && !USER_INFO_OR_FRAGMENT.test(text);
  const url = isUrl ? URL.parse(/^https:/i.test(text) ? text : `https://${text}`) : null;
  const path = url && url.pathname + url.search;
  return {
    text,
    uuid: isUuid(text) ? text.toLowerCase() : undefined,
    webhookId,
    ...(url ? { host: url.host, url: path === "/" ? undefined : `https://${url.host}${path}` } : {}),
  };
}

/** The words of a text with several, at most MAX_WORDS without those that join them; otherwise none. */
export function wordsOf(text: string): SearchText[] {
  const words = /\s/.test(text) ? searchWords(text) : [];
  return words.length <= MAX_WORDS ? words.map(meaningsOf) : [];
}

/**
 * Splits a text such as `tenant-42 error:connection refused` into what precedes `error:`, trimmed, and what follows, in lower case. The error
 * is undefined for other texts.
 */
export function splitError(text: string): { rest: string; error?: string } {
  const [, rest, error] = /^(.*?)(?<!\S)error:\s*(\S.*)$/is.exec(text) ?? [];
  return rest === undefined || error === undefined
    ? { rest: text }
    : { rest: rest.trim(), error: error.toLowerCase() };
}

/** The part of a webhook's name that a text may be, in lower case; undefined if it is too short. */
export function namePartOf({ text }: SearchText): string | undefined {
  return text.length < MIN_NAME_PART ? undefined : text.toLowerCase();
}
