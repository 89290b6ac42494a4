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
  callerScope,
  optionalUuid,
  pageSize,
  pageToken,
  readOlderPageToken,
  type Scope,
} from "../../calls/index.ts";
import type { Db } from "../../lib/pg/index.ts";
import { timeOfId } from "../../schema/index.ts";
import { type AuditAction as ActionName, type AuditRow, type Facts, listAuditEntries } from "../audit-log.ts";

/** The default number of items per page. */
const DEFAULT_PAGE = 100;
/** The maximum number of items per page. */
const MAX_PAGE = 1_000;
/** The maximum length of a target id, in characters. */
const MAX_TARGET_CHARACTERS = 100;
const PREFIX = "AUDIT_ACTION_";

/** Numbers of actions by their names in the database. */
const NUMBERS: ReadonlyMap<string, AuditAction> = new Map(
  AuditActionSchema.values
    .filter(({ number }) => number !== AuditAction.UNSPECIFIED)
    .map(({ name, number }) => [name.slice(PREFIX.length).toLowerCase(), number as AuditAction]),
);

/** Lists the audit log. */
export function auditService({ db }: { db: Db }): ServiceImpl<typeof AuditService> {
  return {
    async listAuditEntries(request, handler) {
      const limit = pageSize(request.pageSize, { most: MAX_PAGE, usual: DEFAULT_PAGE });
      const { targetId } = request;
      if (targetId !== undefined) assertText("target_id", targetId, MAX_TARGET_CHARACTERS);
      const before = readOlderPageToken(request.pageToken);
      const scope = callerScope(handler);
      const found = await listAuditEntries(
        db,
        scope,
        {
          actions: request.actions.map(actionName),
          apiKeyId: optionalUuid("api_key_id", request.apiKeyId),
          // Numbers, and UUIDs in lower case.
          targetId: targetId?.toLowerCase(),
          from: request.from && timestampDate(request.from),
          to: request.to && timestampDate(request.to),
          before,
        },
        limit + 1,
      );
      const page = found.slice(0, limit);
      const last = page.at(-1);
      return {
        entries: page.map((row) => entryMessage(row, scope)),
        nextPageToken: last && found.length > limit ? pageToken(last.id) : "",
      };
    },
  };
}

function actionName(number: AuditAction): ActionName {
  for (const [name, each] of NUMBERS) if (each === number) return name as ActionName;
  const choices = [...NUMBERS].map(([name, each]) => `${each} (${PREFIX}${name.toUpperCase()})`).join(", ");
  throw invalidField("actions", `holds ${number}, which is not an action; send any of: ${choices}`);
}

/** An entry as a scope shows it: keys outside of the scope stay hidden. */
function entryMessage(row: AuditRow, scope: Scope): MessageInitShape<typeof AuditEntrySchema> {
  const visible = scope === "everything" || row.actorAppId === scope.installedAppId;
  return {
    id: row.id,
    time: timestampFromDate(timeOfId(row.id)),
    action: NUMBERS.get(row.action) ?? AuditAction.UNSPECIFIED,
    ...(row.apiKeyId !== null && visible
      ? {
          actor: {
            apiKeyId: row.apiKeyId,
            apiKeyName: row.apiKeyName ?? "",
            ...(row.sessionId === null ? {} : { sessionId: row.sessionId }),
            ...(row.address === null ? {} : { address: row.address }),
          },
        }
      : {}),
    byOperator: row.apiKeyId === null,
    targetId: row.targetId ?? "",
    targetName: row.targetName ?? "",
    ...(row.appId === null ? {} : { installedApplicationId: row.appId }),
    webhookProcess: (row.process ?? 0) as WebhookProcess,
    changes: changesOf(row),
  };
}

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
