import { invalidField } from "./errors/errors.ts";
import { BY_UUID } from "./paging.ts";

/** Where a page of a list by UUIDv7 is: the id before which it ends, or after which it begins. Neither for the first page. */
export interface PagePosition {
  before?: string;
  after?: string;
}

/** The prefix of tokens of newer pages. */
const NEWER = "n";

/** The token of the page older than an id. Opaque for callers. */
export function pageToken(id: string): string {
  return BY_UUID.of({ id }).toString("base64url");
}

/** The token of the page newer than an id. */
export function newerPageToken(id: string): string {
  return `${NEWER}.${pageToken(id)}`;
}

/** The token of the page that starts with an id and continues with older ones. */
export function inclusivePageToken(id: string): string {
  const after = BigInt(`0x${id.replaceAll("-", "")}`) + 1n;
  return Buffer.from(after.toString(16).padStart(32, "0"), "hex").toString("base64url");
}

/** @throws DomainError INVALID_ARGUMENT if it is not a token of a page */
export function readPageToken(token: string): PagePosition {
  if (token === "") return {};
  const newer = token.startsWith(`${NEWER}.`);
  const encoded = newer ? token.slice(NEWER.length + 1) : token;
  const id = BY_UUID.parse(Buffer.from(encoded, "base64url"));
  if (id === undefined) {
    throw invalidField("page_token", "must be the next_page_token or previous_page_token of a page");
  }
  return newer ? { after: id } : { before: id };
}
