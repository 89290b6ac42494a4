import { Group, Text } from "@mantine/core";
import {
  IconAlertTriangle,
  IconBan,
  IconCheck,
  IconClock,
  IconFilter,
  IconPlayerPause,
  IconPlugConnectedX,
  IconRefresh,
  IconSend,
  IconX,
} from "@tabler/icons-react";
import type { ReactNode } from "react";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { CircuitBreakerState, type Webhook, WebhookHealth } from "../../../gen/webhook/v1/webhook_pb.ts";
import { capitalized } from "./text/words.ts";
import { Time } from "./time.tsx";

/** The appearance of a state. */
export interface StatusMarkProps {
  /** A word or two: "Failing". */
  label: string;
  colour: "gray" | "blue" | "green" | "orange" | "red";
  icon: ReactNode;
  /** Shown while the pointer rests on it. */
  meaning?: string | undefined;
}

/** A state in a word, a sign and a colour. Only states that need attention, orange and red, have a coloured ground. */
export function StatusMark({ label, colour, icon, meaning }: StatusMarkProps) {
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

/** The label and meaning of each state; short forms of the proto's comments. */
export const DELIVERY_STATES: readonly {
  state: DeliveryState;
  /** The name in URLs. */
  name: string;
  label: string;
  meaning: string;
  colour: StatusMarkProps["colour"];
  icon: ReactNode;
}[] = [
  {
    state: DeliveryState.PENDING,
    name: "pending",
    label: "Pending",
    meaning: "Waits for the next dispatch.",
    colour: "gray",
    icon: <IconClock size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.DELIVERING,
    name: "delivering",
    label: "Delivering",
    meaning: "The first attempt is in flight or about to be sent.",
    colour: "blue",
    icon: <IconSend size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.RETRYING,
    name: "retrying",
    label: "Retrying",
    meaning: "An attempt failed; retries remain.",
    colour: "orange",
    icon: <IconRefresh size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.DELIVERED,
    name: "delivered",
    label: "Delivered",
    meaning: "The endpoint accepted it.",
    colour: "green",
    icon: <IconCheck size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.FAILED,
    name: "failed",
    label: "Failed",
    meaning: "The first attempt and three retries failed.",
    colour: "red",
    icon: <IconX size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.CANCELLED,
    name: "cancelled",
    label: "Cancelled",
    meaning: "The webhook was deleted or the payload was erased first.",
    colour: "gray",
    icon: <IconBan size={ICON_SIZE} />,
  },
  {
    state: DeliveryState.FILTERED,
    name: "filtered",
    label: "Filtered",
    meaning: "The webhook's filter does not match the event.",
    colour: "gray",
    icon: <IconFilter size={ICON_SIZE} />,
  },
];

/** The state of a delivery, in a word, a sign and a colour; a pointer held on it shows what it means. */
export function DeliveryStateBadge({ state }: { state: DeliveryState }) {
  const told = DELIVERY_STATES.find((each) => each.state === state);
  return (
    <StatusMark
      label={told?.label ?? "Unknown"}
      colour={told?.colour ?? "gray"}
      icon={told?.icon}
      meaning={told?.meaning}
    />
  );
}

/** The label and meaning of each health, worst first; short forms of the proto's comments. */
export const WEBHOOK_HEALTHS: readonly {
  health: WebhookHealth;
  /** The name in URLs. */
  name: string;
  label: string;
  meaning: string;
  colour: StatusMarkProps["colour"];
  icon: ReactNode;
}[] = [
  {
    health: WebhookHealth.FAILING,
    name: "failing",
    label: "Failing",
    meaning: "The latest attempts failed, and none has succeeded since.",
    colour: "red",
    icon: <IconX size={ICON_SIZE} />,
  },
  {
    health: WebhookHealth.DEGRADED,
    name: "degraded",
    label: "Degraded",
    meaning: "At least a tenth of the attempts of the last five minutes failed.",
    colour: "orange",
    icon: <IconAlertTriangle size={ICON_SIZE} />,
  },
  {
    health: WebhookHealth.HEALTHY,
    name: "healthy",
    label: "Healthy",
    meaning: "At least nine in ten recent attempts succeeded, or there were none.",
    colour: "green",
    icon: <IconCheck size={ICON_SIZE} />,
  },
];

/** The label and meaning of circuit breakers that hold deliveries back. */
const BREAKER_STATES: readonly (Omit<StatusMarkProps, "meaning"> & { state: CircuitBreakerState })[] = [
  {
    state: CircuitBreakerState.OPEN,
    label: "Circuit open",
    colour: "orange",
    icon: <IconPlugConnectedX size={ICON_SIZE} />,
  },
  {
    state: CircuitBreakerState.DISABLED,
    label: "Disabled",
    colour: "red",
    icon: <IconBan size={ICON_SIZE} />,
  },
];

/** Whether the circuit breaker of a webhook holds its deliveries back. */
export function isHeldBack({ circuitBreaker }: Webhook): boolean {
  return BREAKER_STATES.some(({ state }) => state === circuitBreaker?.state);
}

/**
 * A webhook's health, in a word, a sign and a colour; before it, whether the webhook is paused or held back by its circuit
 * breaker.
 */
export function WebhookHealthBadges({ webhook }: { webhook: Webhook }) {
  const told = WEBHOOK_HEALTHS.find(({ health }) => health === webhook.health);
  const held = BREAKER_STATES.find(({ state }) => state === webhook.circuitBreaker?.state);
  return (
    <Group gap={4} wrap="wrap" style={{ flexShrink: 0, rowGap: 0 }}>
      {webhook.paused && (
        <StatusMark
          label="Paused"
          colour="gray"
          icon={<IconPlayerPause size={ICON_SIZE} />}
          meaning="Deliveries wait until the webhook is resumed."
        />
      )}
      {held && (
        <StatusMark {...held} meaning={`Deliveries are held back: ${webhook.circuitBreaker?.reason}.`} />
      )}
      {told && <StatusMark {...told} />}
    </Group>
  );
}

/** `HTTP status 503 · began 3 minutes ago`: a webhook's last error and since when attempts fail; nothing while it is healthy. */
export function LastError({ webhook }: { webhook: Webhook }) {
  const { health, lastError, failingSince } = webhook;
  if (health !== WebhookHealth.FAILING && health !== WebhookHealth.DEGRADED) return null;
  const colour = health === WebhookHealth.FAILING ? "red" : "orange";
  return (
    <Text size="xs" c={`var(--mantine-color-${colour}-light-color)`} style={{ overflowWrap: "anywhere" }}>
      {errorInWords(lastError)}
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
export function errorInWords(lastError: string | undefined): string {
  if (!lastError) return "Attempts fail";
  return capitalized(lastError);
}
