import { invalidField } from "./errors/errors.ts";

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
 * @throws DomainError INVALID_ARGUMENT for an invalid size or token
 */
export async function readPage<Row, Position>(
  asked: AskedPage,
  position: { of: (row: Row) => string; parse: (text: string) => Position | undefined },
  read: (page: { after: Position | null; limit: number }) => Promise<Row[]>,
): Promise<{ rows: Row[]; nextPageToken: string }> {
  const size = pageSize(asked.pageSize);
  const rows = await read({ after: positionIn(asked.pageToken, position.parse), limit: size + 1 });
  const last = rows.length > size ? rows[size - 1] : undefined;
  return {
    rows: rows.slice(0, size),
    nextPageToken: last === undefined ? "" : Buffer.from(position.of(last)).toString("base64url"),
  };
}

function positionIn<Position>(token: string, parse: (text: string) => Position | undefined): Position | null {
  if (token === "") return null;
  const position = parse(Buffer.from(token, "base64url").toString());
  if (position !== undefined) return position;
  throw invalidField("page_token", "must be the next_page_token of a page");
}

/** The largest bigint of the database. */
const MAX_ID = 2n ** 63n - 1n;

/** Pages by a numeric id. */
export const BY_ID = {
  of: ({ id }: { id: bigint }) => String(id),
  parse: (text: string) => (/^\d{1,19}$/.test(text) && BigInt(text) <= MAX_ID ? BigInt(text) : undefined),
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
  of: ({ createdUs, id }: CreatedPosition) => `${createdUs} ${id}`,
  parse(text: string): CreatedPosition | undefined {
    const [, us, id] = /^(\d{1,16}) ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(text) ?? [];
    return us === undefined || id === undefined ? undefined : { createdUs: BigInt(us), id };
  },
};
