import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Alert, Button, Stack, Text } from "@mantine/core";
import { IconBan, IconPlugConnectedX } from "@tabler/icons-react";
import { CircuitBreakerState, type Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useMay } from "../../../api/session.tsx";
import { useLateness } from "../../../parts/status/next-retry.tsx";
import { capitalized } from "../../../parts/text/capitalized.ts";
import { Time } from "../../../parts/text/time.tsx";
import { useResume } from "../actions/pausing.tsx";
import { useUndelivered } from "../actions/use-undelivered.ts";

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
      variant="light"
      icon={disabled ? <IconBan /> : <IconPlugConnectedX />}
      title={disabled ? "Disabled" : "Circuit breaker open"}
      // As an alert, each change of the count or of the time until the probe would be announced.
      role="note"
    >
      <Stack align="flex-start" gap="sm">
        <Text size="sm">
          Its deliveries have been held back since <Time value={since} />: {reason}.{" "}
          {waiting && `${capitalized(waiting)} ${waiting === "1 delivery" ? "waits" : "wait"}. `}
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
          <Button size="xs" variant="default" loading={resume.isPending} onClick={resume.run}>
            {disabled ? "Enable and send" : "Send all now"}
          </Button>
        )}
      </Stack>
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
