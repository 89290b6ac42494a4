import { Group, RingProgress, Text } from "@mantine/core";
import type { WebhookStats } from "../../../../gen/webhook/v1/stats_pb.ts";
import { durationInWords } from "../../parts/duration.ts";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Loading } from "../../parts/loading.tsx";
import { Section } from "../../parts/section.tsx";
import { percentage, ringSections, successRate, useLastDay } from "./last-day.ts";

/** Whether it has deliveries, and none of them was begun. */
function isUntouched({ attempts, delivered, failed }: WebhookStats): boolean {
  return attempts + delivered + failed === 0n;
}

/** How a webhook did in the last day. */
export function LastDayCard({ webhookId }: { webhookId: bigint }) {
  const { stats, error, retry } = useLastDay();
  const its = stats?.get(webhookId);
  const rate = its && successRate(its);
  return (
    <Section title="Last 24 hours">
      {!stats ? (
        error === null ? (
          <Loading lines={6} />
        ) : (
          <Failure error={error} onRetry={retry} />
        )
      ) : !its || isUntouched(its) ? (
        <Text size="sm" c="dimmed">
          Nothing was sent to it. Once there are deliveries, this shows how many arrived and how long the
          receiver takes.
        </Text>
      ) : (
        <Group gap="xl" align="center">
          <RingProgress
            size={120}
            thickness={12}
            sections={rate === undefined ? [] : ringSections(rate)}
            label={
              <Text ta="center" fw={650}>
                {rate === undefined ? "–" : percentage(rate)}
              </Text>
            }
            role="img"
            aria-label={rate === undefined ? "No delivery has ended yet" : `${percentage(rate)} delivered`}
          />
          <Facts
            inline
            facts={[
              ["Delivered", its.delivered.toLocaleString()],
              ["Failed", its.failed.toLocaleString()],
              ["Attempts", its.attempts.toLocaleString()],
              ["Average attempt", durationInWords(its.averageMs)],
              ["Longest attempt", durationInWords(its.longestMs)],
            ]}
          />
        </Group>
      )}
    </Section>
  );
}
