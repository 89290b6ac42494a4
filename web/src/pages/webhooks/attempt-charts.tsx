import { timestampMs } from "@bufbuild/protobuf/wkt";
import { useQuery } from "@connectrpc/connect-query";
import { BarChart, LineChart } from "@mantine/charts";
import { Box, Button, Collapse, Group, SimpleGrid, Skeleton, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";
import { useNavigate } from "react-router";
import {
  StatsService,
  type WebhookHistory,
  type WebhookInterval,
  type WebhookPeriod,
} from "../../../../gen/webhook/v1/stats_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useLive } from "../../api/queries.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { DataTable } from "../../parts/listing.tsx";
import { Section } from "../../parts/page.tsx";
import { type Period, PeriodSelect, periodOf } from "../../parts/periods.tsx";
import { durationInWords } from "../../parts/text/words.ts";
import { useZone, type ZoneFormats } from "../../parts/time.tsx";
import { historyInWords, percentage, successRate } from "./list/figures.tsx";

import "@mantine/charts/styles.css";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;
/** The height in pixels. */
const HEIGHT = 170;
/** The same for both charts, so that their time axes align where they are below each other. */
const AXIS_WIDTH = 60;
const OUTCOMES = [
  { name: "succeeded", label: "Succeeded", color: "var(--chart-succeeded)" },
  { name: "failed", label: "Failed", color: "var(--chart-failed)" },
];
const LATENCIES = [
  { name: "p50", label: "p50", color: "var(--chart-p50)" },
  { name: "p95", label: "p95", color: "var(--chart-p95)" },
];

/** A webhook's attempts by outcome and their latency over a period, which lead to the deliveries of an interval. */
export function AttemptCharts({ webhookId }: { webhookId: bigint }) {
  const [period, setPeriod] = useState(() => periodOf(""));
  const histories = useQuery(
    StatsService.method.listWebhookHistory,
    { webhookIds: [webhookId], hours: period.hours },
    { refetchInterval: REFRESH_MS, placeholderData: (before) => before },
  );
  return (
    <Section title="Attempts" actions={<PeriodSelect period={period} onChange={setPeriod} />}>
      <PeriodFigures webhookId={webhookId} period={period} />
      <Refreshed query={histories} loading={<Skeleton height={HEIGHT} />}>
        {({ webhooks: [history], intervalSeconds }) =>
          history && <Charts history={history} seconds={intervalSeconds} period={period} />
        }
      </Refreshed>
    </Section>
  );
}

/** The figures of a period, and their names. */
const FIGURES: readonly (readonly [name: string, of: (period: WebhookPeriod) => string])[] = [
  ["Success rate", (period) => rateInWords(successRate(period))],
  ["Delivered", ({ delivered }) => delivered.toLocaleString()],
  ["Failed", ({ failed }) => failed.toLocaleString()],
  ["Attempts", ({ attempts }) => attempts.toLocaleString()],
  ["Failed attempts", ({ failedAttempts }) => failedAttempts.toLocaleString()],
  ["Latency p50", ({ latencyP50Ms }) => latencyInWords(latencyP50Ms)],
  ["Latency p95", ({ latencyP95Ms }) => latencyInWords(latencyP95Ms)],
];

/** The webhook's deliveries, attempts and latency in a period; nothing if nothing was tried or ended. */
function PeriodFigures({ webhookId, period }: { webhookId: bigint; period: Period }) {
  const stats = useLive(StatsService.method.getWebhookStats, { webhookId }, REFRESH_MS);
  return (
    <Refreshed query={stats} loading={<Loading lines={1} height={42} />}>
      {({ periods }) => {
        const found = periods.find(({ hours }) => hours === period.hours);
        if (!found || found.attempts + found.delivered + found.failed === 0n) return null;
        return (
          <Group
            component="dl"
            m={0}
            gap="xl"
            style={{ rowGap: 8 }}
            aria-label="Statistics"
            className="figures"
          >
            {FIGURES.map(([name, of]) => (
              <div key={name}>
                <Text component="dt" size="xs" c="dimmed">
                  {name}
                </Text>
                <Text component="dd" m={0} size="lg" fw={500}>
                  {of(found)}
                </Text>
              </div>
            ))}
          </Group>
        );
      }}
    </Refreshed>
  );
}

const rateInWords = (rate: number | undefined) => (rate === undefined ? "–" : percentage(rate));

interface ChartsProps {
  history: WebhookHistory;
  /** The length of an interval. */
  seconds: number;
  period: Period;
}

function Charts({ history, seconds, period }: ChartsProps) {
  const zone = useZone();
  const navigate = useNavigate();
  const [shown, table] = useDisclosure();
  if (history.attempts === 0n) {
    return <Dimmed>No attempts {period.inWords}.</Dimmed>;
  }
  const data = history.intervals.map((interval) => plotted(interval, period, zone));
  const deliveries = (interval: WebhookInterval) => deliveriesWithin(history.webhookId, interval, seconds);
  const open = (index: number) => {
    const interval = history.intervals[index];
    if (interval && interval.attempts > 0n) navigate(deliveries(interval));
  };
  const common = {
    h: HEIGHT,
    data,
    dataKey: "time",
    withLegend: true,
    legendProps: { verticalAlign: "top", align: "right" } as const,
    xAxisProps: { interval: "equidistantPreserveStart", minTickGap: 40 } as const,
  };
  return (
    <Stack gap="sm">
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="md">
        <Box role="img" aria-label={historyInWords(history, period)} className="clickable-chart">
          <BarChart
            {...common}
            type="stacked"
            series={OUTCOMES}
            valueFormatter={(value) => value.toLocaleString()}
            yAxisProps={{ allowDecimals: false, width: AXIS_WIDTH }}
            barChartProps={{ accessibilityLayer: false }}
            barProps={{ onClick: (_bar, index) => open(index) }}
          />
        </Box>
        <Box role="img" aria-label={`Latency of attempts ${period.inWords}.`}>
          <LineChart
            {...common}
            series={LATENCIES}
            curveType="linear"
            connectNulls={false}
            withDots
            dotProps={{ r: 2 }}
            valueFormatter={(value) => durationInWords(value)}
            yAxisProps={{ width: AXIS_WIDTH, tickFormatter: (ms: number) => durationInWords(ms) }}
            lineChartProps={{ accessibilityLayer: false }}
          />
        </Box>
      </SimpleGrid>
      <Box>
        <Button variant="subtle" size="compact-xs" onClick={table.toggle} aria-expanded={shown}>
          {shown ? "Hide the table" : "Show as a table"}
        </Button>
        <Dimmed span size="xs" ml="xs">
          Click a bar to list the deliveries created in its interval.
        </Dimmed>
      </Box>
      <Collapse expanded={shown}>
        {shown && <Figures history={history} zone={zone} period={period} linkTo={deliveries} />}
      </Collapse>
    </Stack>
  );
}

interface FiguresProps {
  history: WebhookHistory;
  zone: ZoneFormats;
  period: Period;
  linkTo: (interval: WebhookInterval) => string;
}

/** The intervals with attempts, newest first. */
function Figures({ history, zone, period, linkTo }: FiguresProps) {
  const some = history.intervals.filter(({ attempts }) => attempts > 0n).toReversed();
  return (
    <DataTable
      aria-label="Attempts over time"
      items={some}
      keyOf={({ start }) => String(start?.seconds)}
      minWidth={420}
      className="figures"
      columns={[
        { name: `From (${zone.name})`, cell: (interval) => startInWords(interval, period, zone) },
        { name: "Attempts", ta: "right", cell: ({ attempts }) => attempts.toLocaleString() },
        { name: "Failed", ta: "right", cell: ({ failedAttempts }) => failedAttempts.toLocaleString() },
        { name: "p50", ta: "right", cell: ({ latencyP50Ms }) => latencyInWords(latencyP50Ms) },
        { name: "p95", ta: "right", cell: ({ latencyP95Ms }) => latencyInWords(latencyP95Ms) },
        {
          name: "Log",
          ta: "right",
          cell: (interval) => <PageLink to={linkTo(interval)}>Deliveries</PageLink>,
        },
      ]}
    />
  );
}

function plotted(interval: WebhookInterval, period: Period, zone: ZoneFormats) {
  const { attempts, failedAttempts, latencyP50Ms, latencyP95Ms } = interval;
  return {
    time: startInWords(interval, period, zone),
    succeeded: Number(attempts - failedAttempts),
    failed: Number(failedAttempts),
    // Null leaves a gap.
    p50: latencyP50Ms ?? null,
    p95: latencyP95Ms ?? null,
  };
}

/** `14:30`, or `Fri 12:00` where the period has several days. */
function startInWords({ start }: WebhookInterval, period: Period, zone: ZoneFormats): string {
  if (!start) return "";
  const date = new Date(timestampMs(start));
  return period.hours > 24 ? zone.weekdayTime.format(date) : zone.time.format(date);
}

const latencyInWords = (ms: number | undefined) => (ms === undefined ? "–" : durationInWords(ms));

/** The list of the deliveries that were created in an interval. */
function deliveriesWithin(webhookId: bigint, { start }: WebhookInterval, seconds: number): string {
  const from = start ? timestampMs(start) : 0;
  return listPage(PAGE_PATHS.deliveries, {
    webhook: String(webhookId),
    from: new Date(from).toISOString(),
    to: new Date(from + seconds * 1_000).toISOString(),
  });
}
