import { Box, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { StatsService, type WebhookPeriod } from "../../../../gen/webhook/v1/stats_pb.ts";
import { useLive } from "../../api/queries.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { durationInWords } from "../../parts/text/words.ts";
import { percentage, RateBar, successRate } from "./list/figures.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;

/** The rows of the table, for each period. */
const ROWS: readonly (readonly [name: string, of: (period: WebhookPeriod) => ReactNode])[] = [
  ["Success rate", (period) => <Rate of={period} />],
  ["Delivered", ({ delivered }) => delivered.toLocaleString()],
  ["Failed", ({ failed }) => failed.toLocaleString()],
  ["Attempts", ({ attempts }) => attempts.toLocaleString()],
  ["Failed attempts", ({ failedAttempts }) => failedAttempts.toLocaleString()],
  ["Latency p50", (period) => <Latency of={period} ms={period.latencyP50Ms} />],
  ["Latency p95", (period) => <Latency of={period} ms={period.latencyP95Ms} />],
];

/** The webhook's deliveries, attempts and latency in the last hour, day and week, side by side. */
export function Statistics({ webhookId }: { webhookId: bigint }) {
  const stats = useLive(StatsService.method.getWebhookStats, { webhookId }, REFRESH_MS);
  return (
    <Section title="Statistics">
      <Refreshed query={stats} loading={<Loading lines={8} />}>
        {({ periods }) => <Periods periods={periods} />}
      </Refreshed>
    </Section>
  );
}

function Periods({ periods }: { periods: readonly WebhookPeriod[] }) {
  const longest = periods.at(-1);
  if (!longest || isUntouched(longest)) {
    return (
      <Dimmed>
        No deliveries in the last {longest ? lengthOf(longest) : "days"}. The success rate and the latency
        appear here after the first delivery.
      </Dimmed>
    );
  }
  return (
    <>
      <Table
        layout="fixed"
        verticalSpacing={6}
        horizontalSpacing={4}
        aria-label="Statistics by period"
        style={{ fontVariantNumeric: "tabular-nums" }}
      >
        <Table.Thead>
          <Table.Tr>
            <Table.Td w="32%" />
            {periods.map((period) => (
              <Table.Th key={period.hours} scope="col" ta="right" fz="xs" style={{ whiteSpace: "nowrap" }}>
                {lengthOf(period)}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {ROWS.map(([name, of]) => (
            <Table.Tr key={name}>
              <Table.Th scope="row" fw={400} c="dimmed">
                {name}
              </Table.Th>
              {periods.map((period) => (
                <Table.Td key={period.hours} ta="right">
                  {of(period)}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Dimmed size="xs">
        Half of the attempts took at most p50, and 95% took at most p95. Both are accurate to about 40%.
      </Dimmed>
    </>
  );
}

/** Whether nothing was tried or ended in a period. */
function isUntouched({ attempts, delivered, failed }: WebhookPeriod): boolean {
  return attempts + delivered + failed === 0n;
}

/** `1 hour`, `24 hours`, `7 days`. */
function lengthOf({ hours }: WebhookPeriod): string {
  if (hours === 1) return "1 hour";
  return hours <= 24 ? `${hours} hours` : `${Math.round(hours / 24)} days`;
}

/** The part of the ended deliveries that arrived, as a number and as a bar. */
function Rate({ of: period }: { of: WebhookPeriod }) {
  const rate = successRate(period);
  if (rate === undefined) return <None meaning="No delivery ended" />;
  return (
    <Box role="img" aria-label={`${percentage(rate)} delivered`} ml="auto" w={56}>
      <Text size="sm" fw={620} ta="right">
        {percentage(rate)}
      </Text>
      <RateBar rate={rate} />
    </Box>
  );
}

function Latency({ of: { attempts }, ms }: { of: WebhookPeriod; ms: number | undefined }) {
  if (ms !== undefined) return durationInWords(ms);
  // Latencies are counted about a second after attempts.
  return <None meaning={attempts === 0n ? "No attempts" : "Not counted yet"} />;
}

/** A dash, and what it means for who cannot see it. */
function None({ meaning }: { meaning: string }) {
  return (
    <Text span inherit c="dimmed" role="img" aria-label={meaning}>
      –
    </Text>
  );
}
