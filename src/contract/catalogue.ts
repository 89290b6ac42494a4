import type { DescEnum, DescField, DescMessage } from "@bufbuild/protobuf";
import { PublishEventRequestSchema, WebhookProcessSchema } from "../../gen/webhook/v1/event_pb.ts";
import { NoticeSchema } from "../../gen/webhook/v1/notice_pb.ts";
import { assertJsonField, TIMESTAMP } from "./json/field-types.ts";
import { pascalCase } from "./json/names.ts";

/**
 * The first number of a notice: an event type of the service itself, which callers cannot publish. Smaller numbers are
 * left to the events of callers.
 */
export const FIRST_NOTICE = 10_001;

/** An event type of the proto. */
export interface CatalogueEntry {
  /** Number of the WebhookProcess, as REST sends it. */
  number: number;
  /** `OrderDispatched`, as REST returns it. */
  name: string;
  /** The member of PublishEventRequest.data that carries it, or of Notice.data: `order_dispatched`. */
  field: string;
  /** The message that its receivers get. */
  payload: DescMessage;
}

/** Whether the number of an event type is that of a notice. */
export function isNotice(number: number): boolean {
  return number >= FIRST_NOTICE;
}

/**
 * The event types that an enum and the oneofs `data` of a request and of notices declare together, in the order of their
 * numbers.
 *
 * @throws Error naming what one of them has and the others have not, or a field whose type payloads cannot have
 */
export function readCatalogue(
  processes: DescEnum,
  request: DescMessage,
  notice: DescMessage,
): CatalogueEntry[] {
  const [requestMembers, noticeMembers] = [membersOf(request), membersOf(notice)];
  const entries = processes.values
    .filter((value) => value.number !== 0)
    .map((value) => {
      const field = value.name.slice("WEBHOOK_PROCESS_".length).toLowerCase();
      const [members, of] = isNotice(value.number) ? [noticeMembers, notice] : [requestMembers, request];
      const payload = members.get(field)?.message;
      if (!payload)
        throw new Error(`${value.name} has no payload: add a message ${field} to ${of.name}.data`);
      assertJsonFields(payload);
      members.delete(field);
      return { number: value.number, name: pascalCase(field), field, payload };
    });
  for (const [members, of] of [
    [requestMembers, request],
    [noticeMembers, notice],
  ] as const) {
    const [left] = members.keys();
    if (left === undefined) continue;
    const number = of === notice ? `, with a number from ${FIRST_NOTICE},` : "";
    throw new Error(
      `${of.name}.data.${left} has no event type: add WEBHOOK_PROCESS_${left.toUpperCase()}${number} to ${processes.name}`,
    );
  }
  return entries.sort((a, b) => a.number - b.number);
}

/** Checks the fields of a payload and of the messages in it. */
function assertJsonFields(payload: DescMessage): void {
  const messages = new Set([payload]);
  // Iterating over a set includes items added meanwhile.
  for (const { fields } of messages)
    for (const field of fields) {
      assertJsonField(field);
      if (field.message && field.message.typeName !== TIMESTAMP) messages.add(field.message);
    }
}

function membersOf(message: DescMessage): Map<string, DescField> {
  const members = message.fields.filter((field) => field.oneof?.name === "data");
  return new Map(members.map((field) => [field.name, field]));
}

/** Every event type, in the order of its number. */
export const catalogue: readonly CatalogueEntry[] = readCatalogue(
  WebhookProcessSchema,
  PublishEventRequestSchema,
  NoticeSchema,
);

const byNumber = new Map(catalogue.map((entry) => [entry.number, entry]));
const byField = new Map(catalogue.map((entry) => [entry.field, entry]));

/** The name of a process for people and for REST; its number as text when a later version of the service made it. */
export function processName(number: number): string {
  return byNumber.get(number)?.name ?? String(number);
}

/** The process whose payload a member of PublishEventRequest.data carries, by the member's name in the proto. */
export function processOfField(field: string): number | undefined {
  return byField.get(field)?.number;
}

/** The members of PublishEventRequest.data, as the proto names them. */
export const payloadFields: readonly string[] = catalogue
  .filter(({ number }) => !isNotice(number))
  .map((entry) => entry.field);
