import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Stack, Text } from "@mantine/core";
import {
  AuditAction,
  AuditActionSchema,
  type AuditChange,
  type AuditEntry,
} from "../../../../gen/webhook/v1/audit_pb.ts";
import { useMay } from "../../api/session.tsx";
import { Dimmed, deliveryPage, PageLink, webhookPage } from "../../parts/inline.tsx";
import { Listing } from "../../parts/listing.tsx";
import { Breakable } from "../../parts/text/breakable.tsx";
import { capitalized } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { CustomerLink } from "../customers/chosen.tsx";

/** Entries, newest first. */
export function EntryList({ entries }: { entries: readonly AuditEntry[] }) {
  return (
    <Listing
      aria-label="Entries"
      items={entries}
      minWidth={680}
      rowProps={() => ({ style: { verticalAlign: "top" } })}
      columns={[
        { name: "Time", w: 190, cell: ({ time }) => <Time value={time} size="sm" /> },
        { name: "Changed with", w: "22%", cell: (entry) => <Actor entry={entry} /> },
        { name: "What", w: "32%", cell: (entry) => <What entry={entry} /> },
        { name: "Before and after", cell: ({ changes }) => <Changes changes={changes} /> },
      ]}
      cardsBelow="md"
      card={(entry) => (
        <>
          <What entry={entry} />
          <Changes changes={entry.changes} />
          <Dimmed component="div">
            <Time value={entry.time} />
          </Dimmed>
          <Actor entry={entry} />
        </>
      )}
    />
  );
}

/** Without a key, the service itself makes these changes: for circuit breakers and slow filters. */
const BY_SERVICE: ReadonlySet<AuditAction> = new Set([
  AuditAction.WEBHOOK_BREAKER_OPENED,
  AuditAction.WEBHOOK_BREAKER_CLOSED,
  AuditAction.WEBHOOK_DISABLED,
  AuditAction.WEBHOOK_FILTER_STOPPED,
  AuditAction.DELIVERIES_SENT_AGAIN,
]);

/** The author of a change, with the address. */
function Actor({ entry: { actor, byOperator, action } }: { entry: AuditEntry }) {
  if (!actor) {
    return (
      <Dimmed>
        {byOperator
          ? BY_SERVICE.has(action)
            ? "The service"
            : "Operator, on the server"
          : "A key outside your app"}
      </Dimmed>
    );
  }
  return (
    <Stack gap={0}>
      <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
        {actor.apiKeyName}
      </Text>
      <Dimmed size="xs">
        {actor.sessionId === undefined ? "API call" : `Settings page, session ${actor.sessionId.slice(0, 8)}`}
        {actor.address !== undefined && ` from ${actor.address}`}
      </Dimmed>
    </Stack>
  );
}

/** The action and its object. */
function What({ entry }: { entry: AuditEntry }) {
  return (
    <Stack gap={0}>
      <Text size="sm" fw={600}>
        {actionInWords(entry.action)}
      </Text>
      <Text size="xs" style={{ overflowWrap: "anywhere" }} component="div">
        <Target entry={entry} />
        {entry.customer !== undefined && !isOfCustomer(entry.action) && (
          <>
            {" · "}
            <CustomerLink id={entry.customer} inText />
          </>
        )}
      </Text>
    </Stack>
  );
}

/** Whether an action changes a customer itself. */
const isOfCustomer = (action: AuditAction) =>
  !!AuditActionSchema.value[action]?.localName.startsWith("CUSTOMER_");

function Target({ entry: { action, targetId, targetName } }: { entry: AuditEntry }) {
  const reads = useMay("Read_Administrative_Data");
  const isDelivery = action === AuditAction.DELIVERY_SENT_AGAIN;
  // A user_id may be a number, too.
  if (isOfCustomer(action)) return <CustomerLink id={targetId} inText />;
  const text = <Breakable text={isDelivery ? targetId : targetName || targetId} />;
  // Ids of webhooks are numbers, all others UUIDs.
  return reads && (isDelivery || /^\d+$/.test(targetId)) ? (
    <PageLink to={isDelivery ? deliveryPage(targetId) : webhookPage(BigInt(targetId))} inherit>
      {text}
    </PageLink>
  ) : (
    text
  );
}

function Changes({ changes }: { changes: readonly AuditChange[] }) {
  const told = changes.filter(({ before, after }) => before !== undefined || after !== undefined);
  if (told.length === 0) return null;
  return (
    <Stack gap={2} component="ul" p={0} m={0} style={{ listStyle: "none" }}>
      {told.map(({ field, before, after }) => (
        <Text key={field} component="li" size="xs" style={{ overflowWrap: "anywhere" }}>
          <Text span inherit c="dimmed">
            {fieldInWords(field)}:{" "}
          </Text>
          {before !== undefined && (
            <Text component="del" inherit>
              <Value text={before} />
            </Text>
          )}
          {before !== undefined && after !== undefined && " → "}
          {after !== undefined && (
            <Text component="ins" inherit td="none">
              <Value text={after} />
            </Text>
          )}
        </Text>
      ))}
    </Stack>
  );
}

/** Matches times as the service writes them: `2026-11-26T04:40:54.933Z`. */
const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

/** A value before or after a change; times are in the chosen zone. */
function Value({ text }: { text: string }) {
  return TIME.test(text) ? (
    <Time value={timestampFromMs(Date.parse(text))} />
  ) : (
    <Breakable text={text || "none"} />
  );
}

/** `rate_limit` → `rate limit`. */
function fieldInWords(field: string): string {
  return field.replaceAll("_", " ");
}

/** The texts of actions that their names do not have. */
const WORDS: Partial<Record<AuditAction, string>> = {
  [AuditAction.WEBHOOK_UPDATED]: "Webhook changed",
  [AuditAction.WEBHOOK_SECRET_READ]: "Signing secret revealed",
  [AuditAction.WEBHOOK_SECRET_ROTATED]: "Signing secret rotated",
  [AuditAction.CUSTOMER_UPDATED]: "Customer changed",
  [AuditAction.API_KEY_DELETED]: "API key removed",
  [AuditAction.INSTALLED_APP_CREATED]: "App created",
  [AuditAction.INSTALLED_APP_DELETED]: "App removed",
  [AuditAction.REQUEST_TRIED]: "Test request sent",
  [AuditAction.WEBHOOK_BREAKER_OPENED]: "Circuit breaker opened",
  [AuditAction.WEBHOOK_BREAKER_CLOSED]: "Circuit breaker closed",
  [AuditAction.WEBHOOK_FILTER_STOPPED]: "Filter switched off",
  [AuditAction.ENDPOINT_UPDATED]: "Event types changed",
};

/** The words for an action: `API key created`; a later version of the service may know more. */
function actionInWords(action: AuditAction): string {
  const name = AuditActionSchema.value[action]?.localName;
  if (name === undefined || action === AuditAction.UNSPECIFIED) return "Unknown action";
  return WORDS[action] ?? capitalized(name.toLowerCase().replaceAll("_", " ")).replace("Api", "API");
}

/** Every action by its name in the address of the page. */
export const ACTIONS: readonly { name: string; action: AuditAction; label: string }[] =
  AuditActionSchema.values
    .filter(({ number }) => number !== AuditAction.UNSPECIFIED)
    .map(({ localName, number }) => ({
      name: localName.toLowerCase().replaceAll("_", "-"),
      action: number as AuditAction,
      label: actionInWords(number as AuditAction),
    }));
