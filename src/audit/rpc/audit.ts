import { create, type MessageInitShape, toJsonString } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  AuditAction,
  AuditActionSchema,
  type AuditChangeSchema,
  type AuditEntry,
  AuditEntrySchema,
  type AuditService,
  type ExportAuditEntriesRequest,
  type ListAuditEntriesRequest,
} from "../../../gen/webhook/v1/audit_pb.ts";
import { ExportFormat } from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import {
  assertText,
  BY_UUID,
  callerScope,
  optionalUuid,
  reachesKey,
  readPage,
  type Scope,
  pageToken as tokenOf,
} from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { type Cell, csvHeader, csvLine } from "../../contract/csv.ts";
import { nameOf, numbersOf } from "../../contract/enum-numbers.ts";
import { present } from "../../contract/present.ts";
import type { Db } from "../../lib/pg/index.ts";
import { timeOfId } from "../../schema/index.ts";
import { type AuditAction as ActionName, type AuditRow, type Facts, listAuditEntries } from "../audit-log.ts";

/** The maximum number of entries per page. */
const MAX_PAGE = 1_000;
/** The number of entries of a list's page if a request names none. */
const USUAL_PAGE = 100;
/** The maximum length of a search text, in characters. */
const MAX_SEARCH_CHARACTERS = 100;
/** The maximum length of a target id, in characters. */
const MAX_TARGET_CHARACTERS = 100;

/** Numbers of actions by their names in the database. */
const NUMBERS: Record<ActionName, AuditAction> = numbersOf(AuditActionSchema);

/** Lists and exports the audit log. */
export function auditService({ db }: { db: Db }): ServiceImpl<typeof AuditService> {
  /** A page of the caller's entries that match a request's filter. */
  async function read(
    request: ListAuditEntriesRequest | ExportAuditEntriesRequest,
    scope: Scope,
    usual: number,
  ): Promise<{ entries: MessageInitShape<typeof AuditEntrySchema>[]; nextPageToken: string }> {
    const { targetId } = request;
    if (targetId !== undefined) assertText("target_id", targetId, MAX_TARGET_CHARACTERS);
    const search = request.search.trim().toLowerCase();
    assertText("search", search, MAX_SEARCH_CHARACTERS);
    const filter = {
      actions: request.actions.map(actionName),
      apiKeyId: optionalUuid("api_key_id", request.apiKeyId),
      // Numbers, and UUIDs in lower case.
      targetId: targetId?.toLowerCase(),
      search: search || undefined,
      from: request.from && timestampDate(request.from),
      to: request.to && timestampDate(request.to),
    };
    let searchedTo: string | null = null;
    const { rows, nextPageToken } = await readPage(
      request,
      BY_UUID,
      async ({ after, limit }) => {
        const page = await listAuditEntries(db, scope, { ...filter, before: after }, limit);
        searchedTo = page.searchedTo;
        return page.entries;
      },
      { most: MAX_PAGE, usual },
    );
    const next = nextPageToken || (searchedTo === null ? "" : tokenOf(searchedTo));
    return { entries: rows.map((row) => entryMessage(row, scope)), nextPageToken: next };
  }

  return {
    listAuditEntries: (request, handler) => read(request, callerScope(handler, request.customer), USUAL_PAGE),

    async exportAuditEntries(request, handler) {
      const { customer, format, pageToken, withoutByteOrderMark } = request;
      if (format !== ExportFormat.CSV && format !== ExportFormat.JSON_LINES)
        throw invalidField(
          "format",
          `${format} is not a format; allowed: EXPORT_FORMAT_CSV, EXPORT_FORMAT_JSON_LINES`,
        );
      const page = await read(request, callerScope(handler, customer), MAX_PAGE);
      const entries = page.entries.map((entry) => create(AuditEntrySchema, entry));
      const isCsv = format === ExportFormat.CSV;
      const header = isCsv && pageToken === "" ? csvHeader(COLUMNS, !withoutByteOrderMark) : "";
      const lines = entries.map((entry) =>
        isCsv ? csvLine(COLUMNS.map(([, of]) => of(entry))) : `${toJsonString(AuditEntrySchema, entry)}\n`,
      );
      return { lines: header + lines.join(""), nextPageToken: page.nextPageToken, entries: entries.length };
    },
  };
}

const COLUMNS: readonly [name: string, of: (entry: AuditEntry) => Cell][] = [
  ["id", ({ id }) => id],
  ["time", ({ time }) => time && timestampDate(time)],
  ["action", ({ action }) => AuditActionSchema.value[action]?.localName.toLowerCase()],
  ["api_key_id", ({ actor }) => actor?.apiKeyId],
  ["api_key_name", ({ actor }) => actor?.apiKeyName],
  ["session_id", ({ actor }) => actor?.sessionId],
  ["address", ({ actor }) => actor?.address],
  ["by_operator", ({ byOperator }) => String(byOperator)],
  ["target_id", ({ targetId }) => targetId],
  ["target_name", ({ targetName }) => targetName],
  ["installed_application_id", ({ installedApplicationId }) => installedApplicationId],
  ["event_type", ({ webhookProcessName }) => webhookProcessName],
  ["customer", ({ customer }) => customer],
  [
    "changes",
    ({ changes }) => JSON.stringify(changes.map(({ field, before, after }) => ({ field, before, after }))),
  ],
];

function actionName(number: AuditAction): ActionName {
  const name = nameOf(NUMBERS, number);
  if (name) return name;
  const choices = AuditActionSchema.values.slice(1).map((each) => `${each.number} (${each.name})`);
  throw invalidField(
    "actions",
    `holds ${number}, which is not an action; send any of: ${choices.join(", ")}`,
  );
}

/** An entry as a scope shows it: keys outside of the scope stay hidden. */
function entryMessage(row: AuditRow, scope: Scope): MessageInitShape<typeof AuditEntrySchema> {
  const visible = reachesKey(scope, { customer: row.actorCustomer, installedAppId: row.actorAppId });
  return present({
    id: row.id,
    time: timestampFromDate(timeOfId(row.id)),
    action: NUMBERS[row.action] ?? AuditAction.UNSPECIFIED,
    actor: visible ? actorOf(row) : null,
    byOperator: row.apiKeyId === null,
    targetId: row.targetId ?? "",
    targetName: row.targetName ?? "",
    installedApplicationId: row.appId,
    customer: row.customer,
    webhookProcess: (row.process ?? 0) as WebhookProcess,
    webhookProcessName: row.process ? processName(row.process) : "",
    changes: changesOf(row),
  });
}

const actorOf = ({ apiKeyId, apiKeyName, sessionId, address }: AuditRow) =>
  apiKeyId === null ? null : present({ apiKeyId, apiKeyName: apiKeyName ?? "", sessionId, address });

/** The changes of an entry, in the order in which the fields were written. */
function changesOf({ before, after }: AuditRow): MessageInitShape<typeof AuditChangeSchema>[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].map((field) => ({
    field,
    ...textOf("before", before[field]),
    ...textOf("after", after[field]),
  }));
}

function textOf<Name extends "before" | "after">(
  name: Name,
  value: Facts[string] | undefined,
): { [Key in Name]?: string } {
  if (value === undefined || value === null) return {};
  const text = Array.isArray(value) ? value.join(", ") : String(value);
  return { [name]: text } as { [Key in Name]?: string };
}
