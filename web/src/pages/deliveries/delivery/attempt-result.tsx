import { Text } from "@mantine/core";
import { type Attempt, type Delivery, DeliveryState } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { IncidentService } from "../../../../../gen/webhook/v1/incident_pb.ts";
import { useLive } from "../../../api/queries.ts";
import { countOf, remedyInWords } from "../../../parts/text/words.ts";
import { TimingBar } from "../../webhooks/live-test.tsx";
import { isFinal } from "../delivery-list.tsx";
import { resultInWords } from "./results.tsx";

interface AttemptResultProps {
  attempt: Attempt;
  delivery: Delivery;
  /** The open incident of the delivery's webhook. */
  incidentId: string | undefined;
}

/** The outcome of an attempt; of a failed one also what to do, and of the latest what follows and what else waits for the same. */
export function AttemptResult({ attempt, delivery, incidentId }: AttemptResultProps) {
  const { cause, error, timing, durationMs } = attempt;
  // The error names the remedy too.
  const told =
    error === undefined || !cause?.remedy ? attempt : { ...attempt, error: error.split("; ", 1)[0] };
  const isLatest = attempt.number === delivery.attemptCount;
  return (
    <>
      <Text size="sm" fw={cause && 500} style={{ overflowWrap: "anywhere" }}>
        {resultInWords(told)}
      </Text>
      {cause?.remedy && <Text size="sm">{remedyInWords(cause.remedy)}</Text>}
      {timing && <TimingBar timing={timing} durationMs={durationMs} />}
      {cause && isLatest && (
        <Text size="sm">
          {delivery.state === DeliveryState.FAILED &&
            "No attempt follows. Send it again once that is mended. "}
          {incidentId !== undefined && <Others incidentId={incidentId} delivery={delivery} />}
        </Text>
      )}
    </>
  );
}

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;

/** `41 other deliveries of 3 webhooks wait for the same.` */
function Others({ incidentId, delivery }: { incidentId: string; delivery: Delivery }) {
  const { data } = useLive(IncidentService.method.getIncident, { incidentId, pageSize: 1 }, REFRESH_MS);
  if (!data?.incident) return null;
  const { waiting, failingWebhooks } = data.incident;
  // Among those that wait is this one.
  const others = Math.max(0, Number(waiting) - (isFinal(delivery) ? 0 : 1));
  if (others === 0) return null;
  const wait = others === 1 ? "waits" : "wait";
  const of = failingWebhooks > 1n ? ` of ${failingWebhooks.toLocaleString()} webhooks` : "";
  return `${countOf(others, "other delivery", "other deliveries")}${of} ${wait} for the same.`;
}
