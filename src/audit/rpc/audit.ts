import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  AuditAction,
  AuditActionSchema,
  type AuditChangeSchema,
  type AuditEntrySchema,
  type AuditService,
} from "../../../gen/webhook/v1/audit_pb.ts";
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
} from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { nameOf, numbersOf } from "../../contract/enum-numbers.ts";
import { present } from "../../contract/present.ts";
import type { Db } from "../../lib/pg/index.ts";
import { timeOfId } from "../../schema/index.ts";
import { type AuditAction as ActionName, type AuditRow, type Facts, listAuditEntries } from "../audit-log.ts";

/** The maximum number of entries per page, and the number if a request names none. */
const PAGE_SIZES = { most: 1_000, usual: 100 };
/** The maximum length of a target id, in characters. */
const MAX_TARGET_CHARACTERS = 100;

/** Numbers of actions by their names in the database. */
const NUMBERS: Record<ActionName, AuditAction> = numbersOf(AuditActionSchema);

/** Lists the audit log. */
export function auditService({ db }: { db: Db }): ServiceImpl<typeof AuditService> {
  return {
    async listAuditEntries(request, handler) {
      const { targetId } = request;
      if (targetId !== undefined) assertText("target_id", targetId, MAX_TARGET_CHARACTERS);
      const scope = callerScope(handler, request.customer);
      const filter = {
        actions: request.actions.map(actionName),
        apiKeyId: optionalUuid("api_key_id", request.apiKeyId),
        // Numbers, and UUIDs in lower case.
        targetId: targetId?.toLowerCase(),
        from: request.from && timestampDate(request.from),
        to: request.to && timestampDate(request.to),
      };
      const { rows, nextPageToken } = await readPage(
        request,
        BY_UUID,
        ({ after, limit }) => listAuditEntries(db, scope, { ...filter, before: after }, limit),
        PAGE_SIZES,
      );
      return { entries: rows.map((row) => entryMessage(row, scope)), nextPageToken };
    },
  };
}

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
