import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type ExportDeliveriesRequest,
  type ExportDeliveriesResponseSchema,
  ExportFormat,
} from "../../../gen/webhook/v1/delivery_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { assertText, type Scope } from "../../calls/index.ts";
import { eventsContaining, readSubjects } from "../../events/index.ts";
import type { Db, StaleReads } from "../../lib/pg/index.ts";
import { loadContents } from "../../queue/index.ts";
import { timeOfId } from "../../schema/index.ts";
import type { DeliveryRow } from "../deliveries.ts";
import type { DeliveryFilter } from "../list.ts";
import { searchDeliveries } from "../search.ts";
import type { SearchText } from "../search-text.ts";
import { deliveryFilter, searchText } from "./delivery-filter.ts";
import { deliveryMessage } from "./delivery-messages.ts";
import { csv, JSON_LINES, type LineFormat } from "./export-lines.ts";

/** The number of deliveries read at a time: few enough that other calls hardly wait. */
const PAGE = 500;
/** The number of payloads that a statement searches for a text: at most 8 MiB, which takes it some 200 ms. */
const EVENTS_PER_SEARCH = 32;
/** The maximum total size of the payloads held at a time, in bytes, unless one alone is larger. */
const MAX_PAYLOAD_BYTES = 1_048_576;
/** The maximum size of a response's lines, in bytes, unless one alone is larger. */
const MAX_LINES_BYTES = 1_048_576;
/** The minimum length of a text searched in payloads, in characters. */
const MIN_TEXT_CHARACTERS = 3;
/** The maximum length of a text searched in payloads, in characters. */
const MAX_TEXT_CHARACTERS = 300;

type Response = MessageInitShape<typeof ExportDeliveriesResponseSchema>;

/** The filter and format of an export. */
export interface Export {
  filter: DeliveryFilter;
  search: SearchText | undefined;
  /** Contained in the payload; empty for any payload. */
  payloadText: string;
  /** Undefined for messages. */
  lines: LineFormat | undefined;
  withPayload: boolean;
}

/** @throws DomainError INVALID_ARGUMENT that names the invalid field */
export function exportOf(request: ExportDeliveriesRequest): Export {
  const { payloadText, format, withPayload, withoutByteOrderMark } = request;
  if (payloadText !== "") {
    if ([...payloadText].length < MIN_TEXT_CHARACTERS) {
      const description = `must have from ${MIN_TEXT_CHARACTERS} to ${MAX_TEXT_CHARACTERS} characters`;
      throw invalidField("payload_text", description);
    }
    assertText("payload_text", payloadText, MAX_TEXT_CHARACTERS);
    if (!request.from) {
      const description = "is required with payload_text, because all payloads since then are read";
      throw invalidField("from", description);
    }
  }
  if (withPayload && format === ExportFormat.UNSPECIFIED) {
    const description =
      "is for EXPORT_FORMAT_CSV and EXPORT_FORMAT_JSON_LINES; GetEvent returns the payload of an event";
    throw invalidField("with_payload", description);
  }
  return {
    filter: deliveryFilter({ ...request, pageToken: "" }),
    search: searchText(request.search),
    payloadText,
    lines: linesOf(format, withPayload, !withoutByteOrderMark),
    withPayload,
  };
}

/** @throws DomainError INVALID_ARGUMENT for an unknown format */
function linesOf(format: ExportFormat, withPayload: boolean, withMark: boolean): LineFormat | undefined {
  switch (format) {
    case ExportFormat.UNSPECIFIED:
      return undefined;
    case ExportFormat.CSV:
      return csv(withPayload, withMark);
    case ExportFormat.JSON_LINES:
      return JSON_LINES;
    default:
      throw invalidField(
        "format",
        `${format} is not a format; allowed: EXPORT_FORMAT_CSV, EXPORT_FORMAT_JSON_LINES, or none for messages`,
      );
  }
}

/**
 * Exports the scope's deliveries, newest first. A page is read when the caller has taken the previous one, so that an
 * export needs the memory of one page, whatever its size.
 *
 * @param keyId the key whose call it is
 */
export async function* exportDeliveries(
  reads: StaleReads,
  scope: Scope,
  { filter, search, payloadText, lines, withPayload }: Export,
  keyId: string,
): AsyncGenerator<Response> {
  let [exported, examined] = [0n, 0n];
  let header = lines?.header ?? "";
  let before: string | undefined;
  do {
    const asked = { ...filter, before };
    const { result } = await reads.read(async (from) => {
      const page = await searchDeliveries(from, scope, asked, PAGE, search);
      const found = await containing(from, page.deliveries, payloadText);
      return { page, found, subjects: await readSubjects(from, found, keyId) };
    });
    const { page, found, subjects } = result;
    before = (page.deliveries.length === PAGE ? page.deliveries.at(-1)?.id : page.searchedTo) ?? undefined;
    examined += BigInt(page.deliveries.length);
    const progress = {
      examined,
      ...(before === undefined ? {} : { examinedBackTo: timestampFromDate(timeOfId(before)) }),
    };
    if (!lines) {
      exported += BigInt(found.length);
      yield { deliveries: found.map((row) => deliveryMessage(row, subjects)), exported, ...progress };
      continue;
    }
    for await (const part of withPayloads(reads, found, withPayload)) {
      for (const { text, count } of texts(part, (each) => lines.line({ ...each, subjects }))) {
        exported += BigInt(count);
        yield { lines: header + text, exported, ...progress };
        header = "";
      }
    }
  } while (before !== undefined);
}

/** The deliveries of a page whose payload contains a text; all of them if the text is empty. */
async function containing(db: Db, page: DeliveryRow[], text: string): Promise<DeliveryRow[]> {
  if (text === "") return page;
  const ids = [...new Set(page.map(({ eventId }) => eventId))];
  const events = new Set<string>();
  for (let first = 0; first < ids.length; first += EVENTS_PER_SEARCH) {
    const found = await eventsContaining(db, ids.slice(first, first + EVENTS_PER_SEARCH), text);
    for (const id of found) events.add(id);
  }
  return page.filter(({ eventId }) => events.has(eventId));
}

/**
 * Divides the deliveries into parts whose payloads are held at once; without payloads, there is one part. No deliveries are
 * one empty part, so that the caller learns of the progress.
 */
async function* withPayloads(
  reads: StaleReads,
  deliveries: readonly DeliveryRow[],
  withPayload: boolean,
): AsyncGenerator<{ delivery: DeliveryRow; payload?: string | null }[]> {
  if (!withPayload || deliveries.length === 0) {
    yield deliveries.map((delivery) => ({ delivery }));
    return;
  }
  for (let rest = deliveries; rest.length > 0; ) {
    const ids = rest.map(({ eventId }) => eventId);
    const { result: contents } = await reads.read((from) =>
      loadContents(from, ids, { maxBytes: MAX_PAYLOAD_BYTES, alone: true }),
    );
    const missing = rest.findIndex(({ eventId }) => !contents.has(eventId));
    const part = missing === -1 ? rest : rest.slice(0, missing);
    yield part.map((delivery) => ({ delivery, payload: contents.get(delivery.eventId)?.payload ?? null }));
    rest = rest.slice(part.length);
  }
}

/**
 * Joins the lines of a part into texts of at most MAX_LINES_BYTES: deliveries that share a payload are one part, and each line
 * repeats the payload. An empty part is one empty text.
 */
function* texts<T>(
  part: readonly T[],
  lineOf: (each: T) => string,
): Generator<{ text: string; count: number }> {
  let [text, bytes, count] = ["", 0, 0];
  for (const each of part) {
    const line = lineOf(each);
    const lineBytes = Buffer.byteLength(line);
    if (count > 0 && bytes + lineBytes > MAX_LINES_BYTES) {
      yield { text, count };
      [text, bytes, count] = ["", 0, 0];
    }
    text += line;
    bytes += lineBytes;
    count += 1;
  }
  yield { text, count };
}
