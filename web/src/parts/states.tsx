import { Group, Text } from "@mantine/core";
import {
  IconAlertTriangle,
  IconBan,
  IconCheck,
  IconCircleDashed,
  IconClock,
  IconClockPause,
  IconFilter,
  IconPlayerPause,
  IconPlugConnectedX,
  IconRefresh,
  IconSend,
  IconTrash,
  IconX,
  type TablerIcon,
} from "@tabler/icons-react";
import type { ReactNode } from "react";
import type { Customer } from "../../../gen/webhook/v1/customer_pb.ts";
import { type Delivery, DeliveryState, WaitingFor } from "../../../gen/webhook/v1/delivery_pb.ts";
import { CircuitBreakerState, type Webhook, WebhookHealth } from "../../../gen/webhook/v1/webhook_pb.ts";
import { capitalized } from "./text/words.ts";
import { Time } from "./time.tsx";

/** The appearance of a state. */
interface StatusMarkProps {
  /** A word or two: "Failing". */
  label: string;
  colour: "gray" | "blue" | "green" | "orange" | "red";
  icon: ReactNode;
  /** Shown while the pointer rests on it. */
  meaning?: string | undefined;
}

/** A state in a word, a sign and a colour. Only states that need attention, orange and red, have a coloured ground. */
function StatusMark({ label, colour, icon, meaning }: StatusMarkProps) {
  return (
    <span className="status" data-colour={colour} title={meaning}>
      <span className="status-sign" aria-hidden>
        {icon}
      </span>
      {label}
    </span>
  );
}

/** The size of icons, in pixels. */
const ICON_SIZE = 12;

type Look = readonly [label: string, colour: StatusMarkProps["colour"], Icon: TablerIcon];

/** The name in URLs, and the appearance. */
function look([label, colour, Icon]: Look) {
  return { name: label.toLowerCase(), label, colour, icon: <Icon size={ICON_SIZE} /> };
}

const { PENDING, DELIVERING, RETRYING, DELIVERED, FAILED, CANCELLED, FILTERED } = DeliveryState;

/** The label and meaning of each state; short forms of the proto's comments. */
export const DELIVERY_STATES = (
  [
    [PENDING, "Waits for the next dispatch.", ["Pending", "gray", IconClock]],
    [DELIVERING, "The first attempt is in flight or about to be sent.", ["Delivering", "blue", IconSend]],
    [RETRYING, "An attempt failed; retries remain.", ["Retrying", "orange", IconRefresh]],
    [DELIVERED, "The endpoint accepted it.", ["Delivered", "green", IconCheck]],
    [FAILED, "The first attempt and three retries failed.", ["Failed", "red", IconX]],
    [CANCELLED, "The webhook was deleted or the payload was erased first.", ["Cancelled", "gray", IconBan]],
    [FILTERED, "The webhook's filter does not match the event.", ["Filtered", "gray", IconFilter]],
  ] as const
).map(([state, meaning, as]) => ({ state, meaning, ...look(as) }));

/** In place of a state that is no attempt. */
const WAITING = look(["Waiting", "gray", IconClockPause]);
const WAITS: Partial<Record<WaitingFor, string>> = {
  [WaitingFor.RESUME]: "the webhook is paused",
  [WaitingFor.RECEIVER]: "the receiver asked to wait",
  [WaitingFor.RATE_LIMIT]: "the webhook’s rate limit",
  [WaitingFor.HOST]: "the host does not answer",
};

/** `Waits: the webhook is paused`; undefined for nothing. */
export const waitsInWords = (waitingFor: WaitingFor) =>
  WAITS[waitingFor] === undefined ? undefined : `Waits: ${WAITS[waitingFor]}`;

/**
 * The state of a delivery, in a word, a sign and a colour; a pointer held on it shows what it means. What is claimed, but waits, is
 * not in flight.
 */
export function DeliveryStateBadge({
  state,
  waitingFor = WaitingFor.UNSPECIFIED,
}: Pick<Delivery, "state"> & Partial<Pick<Delivery, "waitingFor">>) {
  const told = DELIVERY_STATES.find((each) => each.state === state);
  const waits = state === DELIVERING || state === PENDING ? waitsInWords(waitingFor) : undefined;
  const look = waits === undefined ? told : { ...told, ...WAITING, meaning: `${waits}.` };
  return <StatusMark label="Unknown" colour="gray" icon={undefined} {...look} />;
}

const { FAILING, DEGRADED, HEALTHY } = WebhookHealth;

/** The label and meaning of each health, worst first; short forms of the proto's comments. */
export const WEBHOOK_HEALTHS = (
  [
    [FAILING, "The latest attempts failed, and none has succeeded since.", ["Failing", "red", IconX]],
    [
      DEGRADED,
      "At least a tenth of the attempts of the last five minutes failed.",
      ["Degraded", "orange", IconAlertTriangle],
    ],
    [
      HEALTHY,
      "At least nine in ten recent attempts succeeded, or there were none.",
      ["Healthy", "green", IconCheck],
    ],
  ] as const
).map(([health, meaning, as]) => ({ health, meaning, ...look(as) }));

/** In place of the health of a webhook without attempts. */
const NOT_TRIED = {
  ...look(["Not tried yet", "gray", IconCircleDashed]),
  meaning: "Nothing was sent to the endpoint so far.",
};

/** The label of circuit breakers that hold deliveries back. */
const BREAKER_STATES = [
  { state: CircuitBreakerState.OPEN, ...look(["Circuit open", "orange", IconPlugConnectedX]) },
  { state: CircuitBreakerState.DISABLED, ...look(["Disabled", "red", IconBan]) },
];

/** Whether the circuit breaker of a webhook holds its deliveries back. */
export function isHeldBack({ circuitBreaker }: Webhook): boolean {
  return BREAKER_STATES.some(({ state }) => state === circuitBreaker?.state);
}

function PausedMark({ noun }: { noun: "webhook" | "customer" }) {
  return (
    <StatusMark
      label="Paused"
      colour="gray"
      icon={<IconPlayerPause size={ICON_SIZE} />}
      meaning={`Deliveries wait until the ${noun} is resumed.`}
    />
  );
}

/** Whether a customer is paused or being erased, and how many of its webhooks are failing or degraded. */
export function CustomerBadges({ customer: { paused, erasure, counts } }: { customer: Customer }) {
  const { webhooks = 0, failingWebhooks = 0, degradedWebhooks = 0 } = counts ?? {};
  const [health, count] =
    failingWebhooks > 0
      ? [FAILING, failingWebhooks]
      : degradedWebhooks > 0
        ? [DEGRADED, degradedWebhooks]
        : [HEALTHY];
  const told = WEBHOOK_HEALTHS.find((each) => each.health === health);
  return (
    <Group gap={4} wrap="wrap" style={{ rowGap: 0 }}>
      {erasure && !erasure.finished && (
        <StatusMark label="Erasing" colour="red" icon={<IconTrash size={ICON_SIZE} />} />
      )}
      {paused && <PausedMark noun="customer" />}
      {told && webhooks > 0 && (
        <StatusMark
          {...told}
          label={count === undefined ? told.label : `${count.toLocaleString()} ${told.name}`}
        />
      )}
    </Group>
  );
}

/**
 * A webhook's health, in a word, a sign and a colour; before it, whether the webhook is paused, held back by its circuit
 * breaker, or on hold because its endpoint wants no requests.
 */
export function WebhookHealthBadges({ webhook }: { webhook: Webhook }) {
  const told = webhook.neverTried
    ? NOT_TRIED
    : WEBHOOK_HEALTHS.find(({ health }) => health === webhook.health);
  const held = BREAKER_STATES.find(({ state }) => state === webhook.circuitBreaker?.state);
  return (
    <Group gap={4} wrap="wrap" style={{ flexShrink: 0, rowGap: 0 }}>
      {webhook.paused && <PausedMark noun="webhook" />}
      {held && (
        <StatusMark {...held} meaning={`Deliveries are held back: ${webhook.circuitBreaker?.reason}.`} />
      )}
      {webhook.heldUntil && (
        <StatusMark
          label="On hold"
          colour="gray"
          icon={<IconClockPause size={ICON_SIZE} />}
          meaning="Deliveries wait, because the endpoint wants no requests for now."
        />
      )}
      {told && <StatusMark {...told} />}
    </Group>
  );
}

/**
 * `HTTP status 503 · began 3 minutes ago`: a webhook's last error without its remedy, which the webhook's page has, and since when attempts
 * fail; nothing while it is healthy.
 */
export function LastError({ webhook }: { webhook: Webhook }) {
  const { health, lastError, failingSince } = webhook;
  if (health !== WebhookHealth.FAILING && health !== WebhookHealth.DEGRADED) return null;
  const colour = health === WebhookHealth.FAILING ? "red" : "orange";
  return (
    <Text
      size="xs"
      c={`var(--mantine-color-${colour}-light-color)`}
      style={{ overflowWrap: "anywhere" }}
      title={lastError}
    >
      {errorInWords(lastError?.split(";", 1)[0])}
      {failingSince && (
        <>
          {" · began "}
          <Time value={failingSince} relative />
        </>
      )}
    </Text>
  );
}

/** A last error as the beginning of a line. */
export const errorInWords = (lastError: string | undefined) => capitalized(lastError || "attempts fail");
