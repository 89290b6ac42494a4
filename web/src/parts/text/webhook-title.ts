import type { Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";

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
export function addressInShort(url: string): string {
  if (!URL.canParse(url)) return url;
  const { host, pathname } = new URL(url);
  return pathname === "/" ? host : `${host}${pathname}`;
}
