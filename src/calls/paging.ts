import { invalidField } from "./errors/errors.ts";
import { isUuid } from "./values.ts";

/** The maximum size of a page of webhooks, keys, apps or statistics, and the size if a request names none. */
const MAX_PAGE_SIZE = 1_000;

/**
 * Checks the size of a page.
 *
 * @param asked 0 for the usual size
 * @throws DomainError INVALID_ARGUMENT if the size exceeds the maximum
 */
export function pageSize(
  asked: number,
  { most, usual }: { most: number; usual: number } = { most: MAX_PAGE_SIZE, usual: MAX_PAGE_SIZE },
): number {
  if (asked < 0 || asked > most) {
    throw invalidField("page_size", `must be from 1 to ${most}`);
  }
  return asked || usual;
}

/** The page that a request asks for. */
export interface AskedPage {
  pageSize: number;
  pageToken: string;
}

/**
 * Reads one page. A page is read with one more row than it shows, so that the last page has no token.
 *
 * @param read reads at most `limit` rows after a position; null for the first rows
 * @param position how positions are written in tokens
 * @param sizes defaults to those of webhooks
 * @throws DomainError INVALID_ARGUMENT for an invalid size or token
 */
export async function readPage<Row, Position>(
  asked: AskedPage,
  position: { of: (row: Row) => Buffer; parse: (token: Buffer) => Position | undefined },
  read: (page: { after: Position | null; limit: number }) => Promise<Row[]>,
  sizes?: { most: number; usual: number },
): Promise<{ rows: Row[]; nextPageToken: string }> {
  const size = pageSize(asked.pageSize, sizes);
  const after = asked.pageToken === "" ? null : position.parse(Buffer.from(asked.pageToken, "base64url"));
  if (after === undefined) throw invalidField("page_token", "must be the next_page_token of a page");
  const rows = await read({ after, limit: size + 1 });
  const last = rows.length > size ? rows[size - 1] : undefined;
  return {
    rows: rows.slice(0, size),
    nextPageToken: last === undefined ? "" : position.of(last).toString("base64url"),
  };
}

/** The largest bigint of the database. */
const MAX_ID = 2n ** 63n - 1n;

/** Pages by a numeric id. */
export const BY_ID = {
  of: ({ id }: { id: bigint }) => Buffer.from(String(id)),
  parse(token: Buffer) {
    const text = token.toString();
    return /^\d{1,19}$/.test(text) && BigInt(text) <= MAX_ID ? BigInt(text) : undefined;
  },
};

/** Pages by a UUID, whose tokens are those of `pageToken`. */
export const BY_UUID = {
  of: ({ id }: { id: string }) => Buffer.from(id.replaceAll("-", ""), "hex"),
  parse(token: Buffer): string | undefined {
    const id = token.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    return isUuid(id) ? id : undefined;
  },
};

/** A place in a list that is ordered by time and id. */
export interface CreatedPosition {
  /** Microseconds since 1970. */
  createdUs: bigint;
  /** A UUID. */
  id: string;
}

/** Pages by the time of creation and a UUID. */
export const BY_CREATED = {
  of: ({ createdUs, id }: CreatedPosition) => Buffer.from(`${createdUs} ${id}`),
  parse(token: Buffer): CreatedPosition | undefined {
    const [, us, id] = /^(\d{1,16}) ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(String(token)) ?? [];
    return us === undefined || id === undefined ? undefined : { createdUs: BigInt(us), id };
  },
};
