import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type CatalogueEventTypeSchema,
  EventTypeChangeKind,
  type EventTypeChangeSchema,
  type EventTypeService,
} from "../../../gen/webhook/v1/event_type_pb.ts";
import { auditedCall } from "../../audit/index.ts";
import { invalidFields } from "../../calls/errors/index.ts";
import {
  assertServiceWide,
  assertText,
  BY_ID,
  callerOf,
  FairQueue,
  readPage,
  slices,
} from "../../calls/index.ts";
import { type CatalogueEntry, eventTypes, isNotice, isRegistered } from "../../contract/catalogue.ts";
import { descriptionOf } from "../../contract/event-types/description.ts";
import { samplePayload } from "../../contract/event-types/sample.ts";
import { payloadSchema } from "../../contract/event-types/schema.ts";
import type { Db } from "../../lib/pg/index.ts";
import {
  type ChangeKind,
  deprecateEventType,
  type PastChange,
  readPastChanges,
  registerEventTypes,
  type TypeChange,
} from "../registry.ts";
import { refreshEventTypes, storedEventTypes } from "../watch.ts";

/** The maximum length of a name or alias, in characters. */
const MAX_NAME_CHARACTERS = 100;

const KINDS: Record<ChangeKind, EventTypeChangeKind> = {
  added: EventTypeChangeKind.ADDED,
  changed: EventTypeChangeKind.CHANGED,
  unchanged: EventTypeChangeKind.UNCHANGED,
  deprecated: EventTypeChangeKind.DEPRECATED,
  offered_again: EventTypeChangeKind.OFFERED_AGAIN,
};

/** Registers, lists and deprecates event types. */
export function eventTypeService({ db }: { db: Db }): ServiceImpl<typeof EventTypeService> {
  // To check a large set takes seconds and some hundred megabytes.
  const registrations = new FairQueue("registrations", { atOnce: 1 });
  return {
    async registerEventTypes({ fileDescriptorSet, dryRun }, handler) {
      assertServiceWide(handler);
      const { signal } = handler;
      const { changes, revision } = await registrations.run(callerOf(handler).id, signal, () =>
        registerEventTypes(db, fileDescriptorSet, {
          audit: (change) => auditedCall(db, handler, change),
          dryRun,
          signal,
        }),
      );
      await refreshEventTypes();
      return { changes: changes.map(changeMessage), revision };
    },

    async listEventTypes(request, handler) {
      await refreshEventTypes();
      const { rows, nextPageToken } = await readPage(request, BY_PROCESS, async ({ after, limit }) =>
        eventTypes()
          .filter(({ number }) => number > Number(after ?? 0n))
          .slice(0, limit),
      );
      const registered = rows.map(({ number }) => number).filter(isRegistered);
      const past = await readPastChanges(db, registered);
      const byProcess = Map.groupBy(past, ({ process }) => process);
      const deprecated = new Map(storedEventTypes().types.map((type) => [type.process, type.deprecated]));
      const pause = slices(callerOf(handler).id);
      const described: MessageInitShape<typeof CatalogueEventTypeSchema>[] = [];
      for (const entry of rows) {
        const since = deprecated.get(entry.number);
        described.push({
          ...typeMessage(entry, byProcess.get(entry.number) ?? []),
          ...(since ? { deprecated: timestampFromDate(since) } : {}),
        });
        await pause();
      }
      return { eventTypes: described, nextPageToken };
    },

    async deprecateEventType({ eventType, undo }, handler) {
      assertServiceWide(handler);
      const { value: wanted } = eventType;
      if (wanted === undefined)
        throw invalidFields([{ field: "event_type", description: "is required: set process or name" }]);
      if (typeof wanted === "string") assertText("name", wanted, MAX_NAME_CHARACTERS);
      const { change, revision } = await deprecateEventType(
        (work) => auditedCall(db, handler, work),
        wanted,
        !undo,
      );
      await refreshEventTypes();
      return { change: changeMessage(change), revision };
    },
  };
}

const BY_PROCESS = { of: ({ number }: CatalogueEntry) => Buffer.from(String(number)), parse: BY_ID.parse };

function changeMessage({ type, kind, changes }: TypeChange): MessageInitShape<typeof EventTypeChangeSchema> {
  return { ...type, alias: type.alias ?? "", kind: KINDS[kind], changes: [...changes] };
}

function typeMessage(
  entry: CatalogueEntry,
  past: readonly PastChange[],
): MessageInitShape<typeof CatalogueEventTypeSchema> {
  const { number, name, alias, message, payload } = entry;
  return {
    process: number,
    name,
    alias: alias ?? "",
    message,
    description: descriptionOf(entry),
    sample: samplePayload(payload),
    schema: JSON.stringify(payloadSchema(payload)),
    notice: isNotice(number),
    builtIn: !isRegistered(number),
    registrations: past.map(({ revision, registered, kind, changes }) => ({
      revision,
      time: timestampFromDate(registered),
      kind: KINDS[kind],
      changes,
    })),
  };
}
