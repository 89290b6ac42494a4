import type { Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";

/** A text as the beginning of a sentence. */
export const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** What to do about a cause, as a sentence, with the apostrophes of the page. */
export const remedyInWords = (remedy: string): string => `What to do: ${remedy.replaceAll("'", "’")}.`;

/** An error without what to do about it: `connection refused (ECONNREFUSED)`. */
export const withoutRemedy = (error: string): string => error.replace(/; .*?(?= \([^()]+\)$|$)/, "");

/** A number of things in words: `1 delivery`, `1,200 deliveries`. */
export function countOf(count: number, one: string, many: string): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}

/** A rate with two digits: `5/s`, `0.33/s`. */
export const paceInWords = (perSecond: number): string =>
  `${Number(perSecond.toPrecision(2)).toLocaleString()}/s`;

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** A span of time for people, as exactly as it matters: `340 ms`, `1.2 s`, `3 min 4 s`, `2 h 5 min`. */
export function durationInWords(ms: number): string {
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${(ms / SECOND).toFixed(ms < 10 * SECOND ? 1 : 0)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ${Math.floor((ms % MINUTE) / SECOND)} s`;
  return `${Math.floor(ms / HOUR)} h ${Math.floor((ms % HOUR) / MINUTE)} min`;
}

/** The name of a webhook, or the host and path of its URL: `shop.example/hooks/orders`. */
export function webhookTitle({ name, url }: Pick<Webhook, "name" | "url">): string {
  return name ?? addressInShort(url);
}

/** The host of a URL, and its path with the query: `shop.example`, `/hooks?tenant=7`; the whole text if it is not a URL. */
export function addressParts(url: string): [host: string, path: string] {
  if (!URL.canParse(url)) return [url, ""];
  const { host, pathname, search } = new URL(url);
  return [host, pathname === "/" ? search : `${pathname}${search}`];
}

/** Host, path and query of a URL: `shop.example/hooks?tenant=7`. */
export function addressInFull(url: string): string {
  return addressParts(url).join("");
}

/** Host and path of a URL: `shop.example/hooks/orders`; the whole text if it is not a URL. */
function addressInShort(url: string): string {
  if (!URL.canParse(url)) return url;
  const { host, pathname } = new URL(url);
  return pathname === "/" ? host : `${host}${pathname}`;
}
