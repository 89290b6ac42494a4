import { randomUUID } from "node:crypto";
import {
  create,
  createRegistry,
  type DescField,
  type DescMessage,
  type DescMethod,
  ScalarType,
  toJsonString,
} from "@bufbuild/protobuf";
import { anyPack, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { OrderDispatchedSchema } from "../../gen/webhook/v1/event_pb.ts";
import { SLOWEST_FILTER } from "../filters/attacks.ts";

/** What a caller can name. */
export interface KnownIds {
  webhookIds: readonly bigint[];
  deliveryIds: readonly string[];
  eventIds: readonly string[];
}

const MONTH_MS = 30 * 86_400_000;
const MAX_DEPTH = 4;
/** The length of lists. */
const MANY = 100;
const MAX_PAGE = 1_000;
const MAX_INT32 = 2_147_483_647;
/** As many characters as a search may have. */
const LONG_TEXT = "11".repeat(150);

/** Values of fields, by their names, that cost more than others of their kind. `nth` is the number of the request. */
const VALUES: Record<string, (ids: KnownIds, nth: number) => unknown> = {
  webhook_id: ({ webhookIds }, nth) => webhookIds[nth % webhookIds.length],
  webhook_ids: ({ webhookIds }) => webhookIds.slice(0, MAX_PAGE),
  delivery_id: ({ deliveryIds }, nth) => deliveryIds[nth % deliveryIds.length],
  event_id: ({ eventIds }, nth) => eventIds[nth % eventIds.length],
  // The id of no key, so that the caller does not revoke its key.
  api_key_id: () => randomUUID(),
  transfer_to_key_id: () => randomUUID(),
  installed_application_id: () => randomUUID(),
  endpoint_id: () => randomUUID(),
  replay_id: () => randomUUID(),
  url: (_, nth) => `https://receiver.example/${nth}/${randomUUID()}`,
  filter: () => SLOWEST_FILTER,
  payload: () => JSON.stringify({ Text: "x".repeat(100_000) }),
  search: () => LONG_TEXT,
  payload_text: () => LONG_TEXT,
  page_token: () => "",
  process: () => 1,
  page_size: () => MAX_PAGE,
  revision: () => undefined,
  format: () => 1,
  hours: () => 720,
};
/** Methods that delete: they get ids of no webhook, so that the attack continues. */
const DELETES = /^(Delete|Revoke)/;

/** A request of a method with the arguments that cost most: the longest lists, texts and periods, and the slowest filters. */
export function costlyRequest(method: DescMethod, ids: KnownIds, nth: number): object {
  const request = costlyMessage(method.input, ids, nth, 0);
  return DELETES.test(method.name) && "webhookId" in request
    ? { ...request, webhookId: BigInt(nth) << 40n }
    : request;
}

/** The same in JSON. */
export function costlyJson(method: DescMethod, ids: KnownIds, nth: number): string {
  const request = create(method.input, costlyRequest(method, ids, nth) as Record<string, unknown>);
  return toJsonString(method.input, request, { registry: createRegistry(OrderDispatchedSchema) });
}

function costlyMessage(
  desc: DescMessage,
  ids: KnownIds,
  nth: number,
  depth: number,
): Record<string, unknown> {
  if (desc.typeName === "google.protobuf.Timestamp") return { ...timestampFromMs(Date.now()) };
  if (desc.typeName === "google.protobuf.Duration") return { seconds: BigInt(MONTH_MS / 1_000), nanos: 0 };
  if (desc.typeName === "google.protobuf.Any") {
    const order = costlyMessage(OrderDispatchedSchema, ids, nth, depth);
    return { ...anyPack(OrderDispatchedSchema, create(OrderDispatchedSchema, order)) };
  }
  const request: Record<string, unknown> = {};
  for (const field of desc.fields.filter(({ oneof }) => oneof === undefined)) {
    const value = costlyField(field, ids, nth, depth);
    if (value !== undefined) request[field.localName] = value;
  }
  for (const oneof of desc.oneofs) {
    const field = oneof.fields[nth % oneof.fields.length] as DescField;
    const value = costlyField(field, ids, nth, depth);
    if (value !== undefined) request[oneof.localName] = { case: field.localName, value };
  }
  return request;
}

function costlyField(field: DescField, ids: KnownIds, nth: number, depth: number): unknown {
  if (field.name === "process" && field.scalar === ScalarType.STRING) return "OrderDispatched";
  const known = VALUES[field.name];
  if (known) return known(ids, nth);
  if (field.fieldKind === "map") return {};
  if (field.message) {
    if (depth === MAX_DEPTH) return undefined;
    if (
      /^(from|since|after|start)|_(from|since|after)$/.test(field.name) &&
      field.message.typeName.endsWith("Timestamp")
    )
      return { ...timestampFromMs(Date.now() - MONTH_MS) };
    const message = () => costlyMessage(field.message as DescMessage, ids, nth, depth + 1);
    return field.fieldKind === "list" ? Array.from({ length: MANY }, message) : message();
  }
  if (field.enum) {
    const numbers = field.enum.values.map(({ number }) => number).filter((number) => number !== 0);
    return field.fieldKind === "list" ? numbers : numbers[nth % numbers.length];
  }
  const scalar = () => costlyScalar(field.scalar as ScalarType);
  return field.fieldKind === "list" ? Array.from({ length: MANY }, scalar) : scalar();
}

function costlyScalar(scalar: ScalarType): unknown {
  switch (scalar) {
    case ScalarType.STRING:
      return "x".repeat(100);
    case ScalarType.BOOL:
      return true;
    case ScalarType.BYTES:
      return new Uint8Array(1_000);
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return 1;
    case ScalarType.INT64:
    case ScalarType.UINT64:
    case ScalarType.SINT64:
      return BigInt(MAX_INT32);
    default:
      return MAX_PAGE;
  }
}
