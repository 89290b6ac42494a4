import { create, toJsonString } from "@bufbuild/protobuf";
import { DeliverySchema } from "../../../gen/webhook/v1/delivery_pb.ts";
import { processName } from "../../contract/catalogue.ts";
import { type Cell, csvHeader, csvLine } from "../../contract/csv.ts";
import type { Subjects } from "../../events/index.ts";
import type { DeliveryRow } from "../deliveries.ts";
import { deliveryMessage } from "./delivery-messages.ts";

/** A delivery to export. */
export interface ExportRow {
  delivery: DeliveryRow;
  /** The subjects of events, by id. */
  subjects: Subjects;
  /** The event's payload; null if erased, undefined unless asked for. */
  payload?: string | null;
}

/** Writes deliveries as lines of text. */
export interface LineFormat {
  /** The first line, after a byte order mark if there is one; empty for none. */
  header: string;
  /** The line of a delivery, with its end. */
  line(row: ExportRow): string;
}

const COLUMNS: readonly [name: string, of: (row: ExportRow) => Cell][] = [
  ["delivery_id", ({ delivery }) => delivery.id],
  ["event_id", ({ delivery }) => delivery.eventId],
  ["event_type", ({ delivery }) => processName(delivery.process)],
  ["subject", ({ delivery, subjects }) => subjects.get(delivery.eventId)],
  ["webhook_id", ({ delivery }) => delivery.webhookId],
  ["url", ({ delivery }) => delivery.url],
  ["state", ({ delivery }) => delivery.state],
  ["attempts", ({ delivery }) => delivery.attempts],
  ["created", ({ delivery }) => delivery.created],
  ["finished", ({ delivery }) => delivery.finished],
  ["next_attempt", ({ delivery }) => delivery.retryAt],
  ["status", ({ delivery }) => delivery.last?.status],
  ["error", ({ delivery }) => delivery.last?.error],
  ["reason", ({ delivery }) => delivery.reason],
  ["duration_ms", ({ delivery }) => delivery.last?.durationMs],
];

/**
 * CSV of RFC 4180.
 *
 * @param withPayload whether the payload is the last column
 * @param withMark whether it starts with a byte order mark
 */
export function csv(withPayload: boolean, withMark: boolean): LineFormat {
  const columns = withPayload
    ? [...COLUMNS, ["payload", ({ payload }: ExportRow) => payload] as const]
    : COLUMNS;
  return {
    header: csvHeader(columns, withMark),
    line: (row) => csvLine(columns.map(([, of]) => of(row))),
  };
}

/** Line breaks, which valid JSON contains between tokens only. Payloads of test events may have some. */
const LINE_BREAKS = /[\r\n]+/g;

/** A JSON object per line, with the payload as part of it where a row has one. */
export const JSON_LINES: LineFormat = {
  header: "",
  line({ delivery, subjects, payload }) {
    const json = toJsonString(DeliverySchema, create(DeliverySchema, deliveryMessage(delivery, subjects)));
    if (payload === undefined) return `${json}\n`;
    return `${json.slice(0, -1)},"payload":${payload?.replaceAll(LINE_BREAKS, " ") ?? "null"}}\n`;
  },
};
