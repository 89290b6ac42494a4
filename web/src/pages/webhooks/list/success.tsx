import { Anchor, Box, Group, Skeleton, Text } from "@mantine/core";
import { Link } from "react-router";
import type { WebhookStats } from "../../../../../gen/webhook/v1/stats_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { countOf } from "../../../parts/text/count-of.ts";
import { type LastDay, percentage, successRate } from "./last-day.ts";

/** The height in pixels, also while the data loads. */
const HEIGHT = 24;

/** The webhook, and the statistics of all webhooks. */
export interface SuccessProps {
  of: Webhook;
  lastDay: LastDay;
}

/** A webhook's rate of success in the last day, and the counts that it is made of, which lead to its deliveries. */
export function Success({ of, lastDay }: SuccessProps) {
  if (!lastDay.stats) {
    if (lastDay.error === null) return <Skeleton height={HEIGHT} width={150} />;
    return <DeliveriesLink of={of} text="Deliveries" />;
  }
  const stats = lastDay.stats.get(of.id);
  const rate = stats && successRate(stats);
  if (!stats || rate === undefined) {
    return (
      <DeliveriesLink of={of} text={stats && stats.attempts > 0n ? attemptsFailed(stats) : "No deliveries"} />
    );
  }
  return (
    <Box mih={HEIGHT} maw={204}>
      <Group gap={6} wrap="nowrap" align="baseline">
        <Text size="sm" fw={620} className="figures">
          {percentage(rate)}
        </Text>
        <DeliveriesLink
          of={of}
          text={`${stats.delivered.toLocaleString()} delivered, ${stats.failed.toLocaleString()} failed`}
        />
      </Group>
      <RateBar rate={rate} />
    </Box>
  );
}

/** The attempts that failed, of which deliveries may still be retried. */
function attemptsFailed({ attempts, failedAttempts }: WebhookStats): string {
  if (failedAttempts === 0n) return "None has ended yet";
  return `${failedAttempts.toLocaleString()} of ${countOf(Number(attempts), "attempt", "attempts")} failed`;
}

/** Leads to a webhook's deliveries. */
function DeliveriesLink({ of: { id, webhookProcess, url }, text }: { of: Webhook; text: string }) {
  return (
    <Anchor
      component={Link}
      to={deliveriesOf(id)}
      size="xs"
      className="figures"
      aria-label={`Deliveries of ${processName(webhookProcess)} to ${url}: ${text}`}
      style={{ whiteSpace: "nowrap" }}
    >
      {text}
    </Anchor>
  );
}

/** The path of the list of a webhook's deliveries. */
export function deliveriesOf(id: bigint): string {
  return `${PAGE_PATHS.deliveries}?${new URLSearchParams({ webhook: String(id) })}`;
}

/** A rate of success as a thin bar: the part that arrived, and the part that failed in red. @param rate 0 to 1 */
export function RateBar({ rate }: { rate: number }) {
  return (
    <Box className="rate-bar" mt={2} aria-hidden>
      <Box w={`${rate * 100}%`} className="rate-bar-delivered" />
    </Box>
  );
}
