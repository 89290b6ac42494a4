import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Alert, Button, Stack, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconBan, IconClockPause, IconPlayerPause, IconPlugConnectedX } from "@tabler/icons-react";
import { CircuitBreakerState, type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useChange } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { useLateness } from "../../parts/overdue.tsx";
import { notifyDone, useAct } from "../../parts/save.ts";
import { capitalized, paceInWords, webhookTitle } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { typesInWords, useEndpoint, useUndelivered } from "./endpoint.tsx";

/** The button that holds a webhook's deliveries back, and says what that means. No question precedes it: Resume takes it back. */
export function usePause(webhook: Webhook) {
  const pause = useChange(WebhookService.method.pauseWebhook);
  const { webhooks, isKnown } = useEndpoint(webhook);
  return useAct(`${webhookTitle(webhook)} was not paused`, async () => {
    await pause({ webhookId: webhook.id });
    notifications.show({
      title: isKnown && webhooks.length === 1 ? "The webhook is paused" : "The endpoint is paused",
      message: `Events of ${isKnown ? typesInWords(webhooks) : "all its event types"} queue until you resume it. An attempt that is under way is finished.`,
    });
  });
}

/** The button that sends a paused webhook's deliveries again, and says how that went. */
export function useResume(webhook: Webhook) {
  const resume = useChange(WebhookService.method.resumeWebhook);
  return useAct(`${webhookTitle(webhook)} was not resumed`, async () => {
    await resume({ webhookId: webhook.id });
    notifyDone("Pending deliveries are sent with the next dispatch.", "The webhook is resumed");
  });
}

/** Says that a webhook is paused, and what waits for it. */
export function PausedNotice({ webhook }: { webhook: Webhook }) {
  const waiting = useUndelivered(webhook.id, true);
  return (
    // As an alert, each change of the count would be announced.
    <Alert color="orange" icon={<IconPlayerPause />} title="Paused" role="note">
      Its deliveries have been held back since <Time value={webhook.paused} />.{" "}
      {waiting && waitInWords(waiting)}
      {waiting === "" && "None waits yet. "}
      When it is resumed they are sent, from the oldest on, with the next dispatch.
    </Alert>
  );
}

/** @param waiting as useUndelivered has it */
function waitInWords(waiting: string): string {
  return `${capitalized(waiting)} ${waiting === "1 delivery" ? "waits" : "wait"}. `;
}

/** Says that the circuit breaker of a webhook holds its deliveries back, why, and what waits; offers to send them. */
export function BreakerNotice({ webhook }: { webhook: Webhook }) {
  const breaker = webhook.circuitBreaker;
  const disabled = breaker?.state === CircuitBreakerState.DISABLED;
  const held = disabled || breaker?.state === CircuitBreakerState.OPEN;
  const waiting = useUndelivered(webhook.id, held);
  const resume = useResume(webhook);
  const mayWrite = useMay("Write_Administrative_Data");
  if (!breaker || !held) return null;
  const { since, reason, nextProbe } = breaker;
  return (
    <Alert
      color={disabled ? "red" : "orange"}
      icon={disabled ? <IconBan /> : <IconPlugConnectedX />}
      title={disabled ? "Disabled" : "Circuit breaker open"}
      // As an alert, each change of the count or of the time until the probe would be announced.
      role="note"
    >
      <Stack align="flex-start" gap="sm">
        <Text size="sm">
          Its deliveries have been held back since <Time value={since} />: {reason}.{" "}
          {waiting && waitInWords(waiting)}
          {disabled ? (
            "They wait until you enable the webhook."
          ) : (
            <>
              {nextProbe ? <Probe at={nextProbe} /> : "One is sent as a probe"}; if it succeeds, the others
              follow, the oldest first.
            </>
          )}
        </Text>
        {mayWrite && (
          <Button variant="default" {...resume}>
            {disabled ? "Enable and send" : "Send all now"}
          </Button>
        )}
      </Stack>
    </Alert>
  );
}

/** Says that the endpoint of a webhook wants no requests, until when, and how much it takes. */
export function HoldNotice({ webhook: { heldUntil, takesPerSecond } }: { webhook: Webhook }) {
  if (!heldUntil) return null;
  return (
    <Alert
      color="yellow"
      icon={<IconClockPause />}
      title="The endpoint wants no requests for now"
      role="note"
    >
      It has asked for that by Retry-After or RateLimit headers. Its deliveries wait until{" "}
      <Time value={heldUntil} /> and use up no attempts; test events are sent.
      {takesPerSecond !== undefined && ` It takes about ${paceInWords(takesPerSecond)}.`}
    </Alert>
  );
}

/** `One is sent as a probe in 3 minutes`. The planned time stays until the outcome of the probe is known. */
function Probe({ at }: { at: Timestamp }) {
  if (useLateness(at) >= 0) return "A probe is under way or about to be sent";
  return (
    <>
      One is sent as a probe <Time value={at} relative />
    </>
  );
}
