import { Box, Group, Skeleton, Text } from "@mantine/core";
import type { WebhookStats } from "../../../../../gen/webhook/v1/stats_pb.ts";
import { countOf } from "../../../parts/text/count-of.ts";
import { type LastDay, percentage, successRate } from "./last-day.ts";

/** The height in pixels, also while the data loads. */
const HEIGHT = 38;

/** The webhook, and the statistics of all webhooks. */
export interface SuccessProps {
  of: bigint;
  lastDay: LastDay;
}

/** The attempts that failed, of which deliveries may still be retried. */
function attemptsFailed({ attempts, failedAttempts }: WebhookStats): string {
  if (failedAttempts === 0n) return "None has ended yet";
  return `${failedAttempts.toLocaleString()} of ${countOf(Number(attempts), "attempt", "attempts")} failed`;
}

/** A webhook's rate of success in the last day, with the counts that it is made of. */
export function Success({ of, lastDay }: SuccessProps) {
  if (!lastDay.stats) {
    return lastDay.error === null ? <Skeleton height={HEIGHT} width={150} /> : <Text size="sm">–</Text>;
  }
  const stats = lastDay.stats.get(of);
  const rate = stats && successRate(stats);
  if (!stats || rate === undefined) {
    return (
      <Text size="sm" c="dimmed" mih={HEIGHT} style={{ alignContent: "center" }}>
        {stats && stats.attempts > 0n ? attemptsFailed(stats) : "No deliveries"}
      </Text>
    );
  }
  return (
    <Box mih={HEIGHT} maw={204}>
      <Group gap={6} wrap="nowrap" align="baseline">
        <Text size="sm" fw={620} className="figures">
          {percentage(rate)}
        </Text>
        <Text size="xs" c="dimmed" className="figures" style={{ whiteSpace: "nowrap" }}>
          {stats.delivered.toLocaleString()} delivered, {stats.failed.toLocaleString()} failed
        </Text>
      </Group>
      <RateBar rate={rate} />
      {stats.failedAttempts > 0n && (
        <Text size="xs" c="dimmed">
          {countOf(Number(stats.failedAttempts), "failed attempt", "failed attempts")}
        </Text>
      )}
    </Box>
  );
}

/** A rate of success as a thin bar: the part that arrived, and the part that failed in red. @param rate 0 to 1 */
export function RateBar({ rate }: { rate: number }) {
  return (
    <Box className="rate-bar" mt={2} aria-hidden>
      <Box w={`${rate * 100}%`} className="rate-bar-delivered" />
    </Box>
  );
}
