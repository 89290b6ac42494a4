import { Badge, Group, Text } from "@mantine/core";
import { IconAlertTriangle, IconCheck, IconPlayerPause, IconX } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { type Webhook, WebhookHealth } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { Time } from "../text/time.tsx";

const ICON_SIZE = 12;

/** What is told of each health, worst first; the comments of the proto in short. */
export const WEBHOOK_HEALTHS: readonly {
  health: WebhookHealth;
  /** As addresses spell it. */
  name: string;
  label: string;
  meaning: string;
  colour: string;
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

const BADGE = { flexShrink: 0, minWidth: "max-content" };

/** A webhook's health, in a word, a sign and a colour; before it, whether the webhook is paused. */
export function WebhookHealthBadges({ webhook }: { webhook: Webhook }) {
  const told = WEBHOOK_HEALTHS.find(({ health }) => health === webhook.health);
  return (
    <Group gap={6} wrap="wrap" style={{ flexShrink: 0 }}>
      {webhook.paused && (
        <Badge
          variant="light"
          tt="none"
          color="gray"
          leftSection={<IconPlayerPause size={ICON_SIZE} />}
          title="Its deliveries are held back."
          style={BADGE}
        >
          Paused
        </Badge>
      )}
      {told && (
        <Badge
          variant="light"
          tt="none"
          color={told.colour}
          leftSection={told.icon}
          title={told.meaning}
          style={BADGE}
        >
          {told.label}
        </Badge>
      )}
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
  return lastError.charAt(0).toUpperCase() + lastError.slice(1);
}
