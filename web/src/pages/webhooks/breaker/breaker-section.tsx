import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Button, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import {
  type CircuitBreaker,
  CircuitBreakerState,
  type Webhook,
} from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { MAX_PROBE_INTERVAL_S } from "../../../../../src/contract/webhooks/circuit-breaker.ts";
import { useMay } from "../../../api/session.tsx";
import { useFocusBack } from "../../../parts/dialogs/use-focus-back.ts";
import { Facts } from "../../../parts/layout/facts.tsx";
import { Section } from "../../../parts/layout/section.tsx";
import { useLateness } from "../../../parts/status/next-retry.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { Time } from "../../../parts/text/time.tsx";
import { BreakerDialog } from "./breaker-dialog.tsx";
import { periodInWords } from "./period-in-words.ts";

/** The circuit breaker of a webhook: its settings and its state. */
export function BreakerSection({ webhook }: { webhook: Webhook }) {
  const [editing, { open, close }] = useDisclosure();
  const mayWrite = useMay("Write_Administrative_Data");
  useFocusBack(editing);
  const breaker = webhook.circuitBreaker;
  return (
    <Section
      title="Circuit breaker"
      description="Holds deliveries back while the endpoint fails, and sends them once it accepts one again."
      actions={
        mayWrite && (
          <Button variant="default" size="xs" onClick={open}>
            Change…
          </Button>
        )
      }
    >
      {breaker ? (
        <Shown breaker={breaker} />
      ) : (
        <Text size="sm" c="dimmed">
          Off: every delivery gets its four attempts, however long the endpoint has failed.
        </Text>
      )}
      <BreakerDialog webhook={webhook} opened={editing} onClose={close} />
    </Section>
  );
}

const STATES: Partial<Record<CircuitBreakerState, string>> = {
  [CircuitBreakerState.CLOSED]: "Closed",
  [CircuitBreakerState.OPEN]: "Open",
  [CircuitBreakerState.DISABLED]: "Webhook disabled",
};

function Shown({
  breaker: { settings, state, since, failedAttempts, nextProbe },
}: {
  breaker: CircuitBreaker;
}) {
  if (!settings) return null;
  const { failures, failingSeconds, probeSeconds, disableSeconds, disableOnGone, resendFailed } = settings;
  return (
    <Facts
      facts={[
        [
          "State",
          <>
            {STATES[state] ?? "Unknown"}, since <Time value={since} />
          </>,
        ],
        failedAttempts > 0 && ["Failed in a row", countOf(failedAttempts, "attempt", "attempts")],
        nextProbe && ["Next probe", <NextProbe key="probe" at={nextProbe} />],
        [
          "Opens",
          `after ${countOf(failures, "failed attempt", "failed attempts")} over ${periodInWords(failingSeconds)}`,
        ],
        [
          "Probes",
          `first after ${periodInWords(probeSeconds)}, then up to ${periodInWords(MAX_PROBE_INTERVAL_S)} apart`,
        ],
        [
          "Disables the webhook",
          `after ${periodInWords(disableSeconds)} without success${disableOnGone ? ", and on 410 Gone" : ""}`,
        ],
        ["After an outage", resendFailed ? "Sends again what failed in it" : "Sends what waited"],
      ]}
    />
  );
}

function NextProbe({ at }: { at: Timestamp }) {
  return useLateness(at) >= 0 ? "under way or about to be sent" : <Time value={at} relative />;
}
