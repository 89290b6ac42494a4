import { randomUUID } from "node:crypto";
import { type DescField, type DescMessage, getOption, ScalarType } from "@bufbuild/protobuf";
import fc from "fast-check";
import { required } from "../../../gen/webhook/v1/options_pb.ts";
import { STATES, type World } from "./isolated-world.ts";

type Values = (world: World) => fc.Arbitrary<unknown>;
const one = (...values: unknown[]) => fc.constantFrom(...values);
const some = (...values: unknown[]) => fc.subarray(values);
const ofWebhooks =
  (values: (webhook: World["webhooks"][number]) => readonly unknown[]): Values =>
  ({ webhooks }) =>
    fc.constantFrom(...webhooks.flatMap(values));

const webhookId = ofWebhooks(({ id }) => [id]);
const deliveryId = ofWebhooks(({ deliveryIds }) => deliveryIds);
const eventId: Values = (world) =>
  fc.constantFrom(...world.webhooks.flatMap(({ eventIds }) => eventIds), ...world.events.map(({ id }) => id));
const keyId: Values = ({ keys }) => fc.constantFrom(...keys.map(({ id }) => id));
const keyName: Values = ({ keys }) => one(...keys.map(({ name }) => name));
const anyOf =
  (...all: Values[]): Values =>
  (world) =>
    fc.oneof(...all.map((each) => each(world)));
const asText =
  (...all: Values[]): Values =>
  (world) =>
    anyOf(...all)(world).map(String);
const EVENT_TYPES = some(1, 2, 3);
const ANY_STATES = some(...STATES.map((_, index) => index + 1));

/** Values of fields, by their names: right ones about everything that is there, whoever's it is. Others are left out. */
const VALUES: Record<string, Values | fc.Arbitrary<unknown>> = {
  webhook_id: webhookId,
  webhook_ids: ({ webhooks }) => fc.subarray(webhooks.map(({ id }) => id)),
  delivery_id: deliveryId,
  event_id: eventId,
  api_key_id: keyId,
  transfer_to_key_id: keyId,
  host: one("receiver.example", "nobody.example"),
  replay_id: ofWebhooks(({ replayIds }) => replayIds),
  incident_id: ({ incidents }) => one(...incidents.map(({ id }) => id)),
  "ListIncidentsRequest.host": ({ incidents }) => one(...incidents.map(({ subject }) => subject)),
  endpoint_id: ofWebhooks(({ endpointId }) => [endpointId ?? randomUUID()]),
  installed_application_id: ({ appA, appB }) =>
    fc.constantFrom(appA.id, appB.id, randomUUID(), undefined, undefined),
  // Of a list, or of a new key.
  customer: ({ customers }) => one(...customers, "nobody"),
  target_id: asText(webhookId, keyId, deliveryId),
  /** Texts that people search for, whoever's they are; now and then one of nobody. */
  search: asText(...[webhookId, deliveryId, eventId, keyName, ofWebhooks(({ searched }) => searched)], () =>
    one("receiver.example", "nobody"),
  ),
  url: anyOf(
    ofWebhooks(({ url }) => [url]),
    () => one("https://receiver.example/new"),
  ),
  process: one(1, 2),
  processes: fc.subarray([1, 2, 3], { minLength: 1 }),
  add_processes: EVENT_TYPES,
  remove_processes: EVENT_TYPES,
  allowed_processes: EVENT_TYPES,
  permissions: fc.subarray([1, 2, 3, 4], { minLength: 1 }),
  health: some(1, 2, 3),
  states: some(4, 5, 6),
  "ListDeliveriesRequest.states": ANY_STATES,
  "ExportDeliveriesRequest.states": ANY_STATES,
  "ListFailureReasonsRequest.states": some(3, 5),
  actions: some(1, 2, 3, 10, 11, 12, 13, 16, 19),
  name: one("Shop"),
  "RequestHeader.name": one("X-Tenant", "X-Kept"),
  value: one("4711"),
  username: one("user"),
  password: one("password"),
  token: one("token"),
  token_url: one("https://login.example/token"),
  client_id: one("id"),
  client_secret: one("secret"),
  filter: one('user_id == "u"', "event"),
  payload: one('{"Test": 1}'),
  payload_text: one("", "Order"),
  format: one(1, 2),
  user_id: ({ customers }) => one("u", "user-1", ...customers),
  idempotency_key: fc.uuid(),
  order_dispatched: one({ orderId: 1n, orderNumber: "1", dispatchedAt: { seconds: 1n, nanos: 0 } }),
  from: one({ seconds: 1n, nanos: 0 }),
  grace_period: one({ seconds: 60n }),
  delete_webhooks: one({}),
  page_size: one(0, 3, 1_000),
  revision: one(1n, 2n),
  rate_limit: one(1, 100),
  webhooks: one(100_000),
  buckets: one(0, 3),
  hours: one(0, 1, 24, 168),
};
const LEFT_OUT = ["tls", "document_created", "stock_level_changed"];
/** Fields that others need. */
const NEEDED = [
  "CreateApiKeyRequest.permissions",
  "CreateApiKeyRequest.installed_application_id",
  "PublishEventBatchRequest.events",
  "ExportDeliveriesRequest.format",
  "ExportDeliveriesRequest.from",
  "MissedEvents.from",
];

function valuesOf(field: DescField, world: World): fc.Arbitrary<unknown> | undefined {
  if (LEFT_OUT.includes(field.name)) return undefined;
  const values = VALUES[`${field.parent.name}.${field.name}`] ?? VALUES[field.name];
  if (values) return typeof values === "function" ? values(world) : values;
  if (field.fieldKind === "scalar" && field.scalar === ScalarType.BOOL) return fc.boolean();
  if (!field.message || field.message.typeName.startsWith("google.")) return undefined;
  const message = requestsOf(field.message, world);
  return field.fieldKind === "list" ? fc.array(message, { minLength: 1, maxLength: 3 }) : message;
}

/** Requests of a type, derived from it. Mostly of few optional fields: lists with several restrictions hold little. */
export function requestsOf(desc: DescMessage, world: World): fc.Arbitrary<Record<string, unknown>> {
  const known = desc.fields.flatMap((field) => {
    const values = valuesOf(field, world);
    return values ? [{ field, values }] : [];
  });
  const recordOf = (fields: typeof known) =>
    fc.record(Object.fromEntries(fields.map(({ field, values }) => [field.localName, values])));
  const isNeeded = ({ field }: (typeof known)[number]) =>
    getOption(field, required) || NEEDED.includes(`${field.parent.name}.${field.name}`);
  const single = known.filter(({ field }) => !field.oneof);
  const optional = single.filter((each) => !isNeeded(each));
  const oneofs = desc.oneofs.map(({ name, localName }) =>
    fc
      .constantFrom(...known.filter(({ field }) => field.oneof?.name === name))
      .chain(({ field, values }) =>
        values.map((value) => ({ [localName]: { case: field.localName, value } })),
      ),
  );
  return fc
    .tuple(
      recordOf(single.filter(isNeeded)),
      fc.subarray(optional, { maxLength: Math.min(2, optional.length) }).chain(recordOf),
      fc.tuple(...oneofs),
    )
    .map(([always, chosen, members]) => Object.assign({}, always, chosen, ...members));
}
