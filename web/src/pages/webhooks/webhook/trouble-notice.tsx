import { Alert, Text } from "@mantine/core";
import { IconAlertTriangle, IconClockExclamation } from "@tabler/icons-react";
import {
  type OverdueRetries,
  type Webhook,
  WebhookHealth,
} from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { overdueInWords, waitingFor } from "../../../parts/status/overdue.ts";
import { errorInWords } from "../../../parts/status/webhook-health.tsx";
import { capitalized } from "../../../parts/text/capitalized.ts";
import { Time } from "../../../parts/text/time.tsx";

/**
 * A notice of failing attempts, with the last error and since when, and of overdue retries. Its times and counts change
 * by themselves, so that screen readers must not announce each change.
 */
export function TroubleNotice({
  webhook,
  overdue,
}: {
  webhook: Webhook;
  overdue: OverdueRetries | undefined;
}) {
  const { health, lastError, failingSince } = webhook;
  const failing = health === WebhookHealth.FAILING;
  if (!failing && health !== WebhookHealth.DEGRADED) {
    return overdue ? (
      <Alert
        color="orange"
        variant="light"
        icon={<IconClockExclamation />}
        title="Retries are overdue"
        role="note"
      >
        <Overdue webhook={webhook} overdue={overdue} />
      </Alert>
    ) : null;
  }
  return (
    <Alert
      color={failing ? "red" : "orange"}
      variant="light"
      icon={<IconAlertTriangle />}
      title={failing ? "Failing" : "Degraded"}
      role="note"
    >
      <Text size="sm">
        {failing ? "No attempt has succeeded" : "At least a tenth of the recent attempts failed"}
        {failingSince && (
          <>
            {failing ? " since the first failure, " : ". This began "}
            <Time value={failingSince} relative />
          </>
        )}
        .
      </Text>
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        Last error: {errorInWords(lastError)}
      </Text>
      {overdue && <Overdue webhook={webhook} overdue={overdue} />}
    </Alert>
  );
}

function Overdue({ webhook, overdue }: { webhook: Webhook; overdue: OverdueRetries }) {
  const words = `${waitingFor(webhook)}; ${overdueInWords(overdue, Date.now())}.`;
  return <Text size="sm">{capitalized(words)}</Text>;
}
