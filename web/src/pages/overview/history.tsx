import { timestampDate, timestampMs } from "@bufbuild/protobuf/wkt";
import { useQuery } from "@connectrpc/connect-query";
import { BarChart } from "@mantine/charts";
import { Anchor, Badge, Box, Skeleton, Table, Text } from "@mantine/core";
import { IconExternalLink } from "@tabler/icons-react";
import {
  type DispatchRun,
  type GetHistoryResponse,
  type HistoryBucket,
  StatsService,
} from "../../../../gen/webhook/v1/stats_pb.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { durationInWords } from "../../parts/text/words.ts";
import { Time, useZone, type ZoneFormats } from "../../parts/time.tsx";

import "@mantine/charts/styles.css";

/** The height in pixels. */
const HEIGHT = 200;
/** The number of intervals in the chart. */
const BUCKETS = 48;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;

const SERIES = [
  { name: "succeeded", label: "Succeeded", color: "var(--chart-succeeded)" },
  { name: "failed", label: "Failed", color: "var(--chart-failed)" },
];

/** The attempts of the last 24 hours by outcome, in half hours. Attempts that will be retried count as failed. */
export function History() {
  const history = useQuery(
    StatsService.method.getHistory,
    { buckets: BUCKETS },
    { refetchInterval: REFRESH_MS },
  );
  return (
    <Refreshed query={history} loading={<Skeleton height={HEIGHT} />}>
      {({ buckets }) => <Chart buckets={buckets} />}
    </Refreshed>
  );
}

function Chart({ buckets }: Pick<GetHistoryResponse, "buckets">) {
  const zone = useZone();
  const attempts = sum(buckets, (bucket) => bucket.attempts);
  const failed = sum(buckets, ({ failedAttempts }) => failedAttempts);
  if (attempts === 0n) {
    return (
      <Text size="sm" c="dimmed">
        No attempts were made in the last 24 hours.
      </Text>
    );
  }
  return (
    <Box
      role="img"
      aria-label={`In the last 24 hours ${(attempts - failed).toLocaleString()} attempts succeeded and ${failed.toLocaleString()} failed.`}
    >
      <BarChart
        h={HEIGHT}
        type="stacked"
        data={buckets.map((bucket) => plotted(bucket, zone))}
        dataKey="time"
        series={SERIES}
        withLegend
        legendProps={{ verticalAlign: "top", align: "right" }}
        valueFormatter={(value) => value.toLocaleString()}
        xAxisProps={{ interval: "equidistantPreserveStart", minTickGap: 40 }}
        yAxisProps={{ allowDecimals: false, width: "auto" }}
        barChartProps={{ accessibilityLayer: false }}
      />
    </Box>
  );
}

function plotted({ start, attempts, failedAttempts }: HistoryBucket, { time }: ZoneFormats) {
  return {
    time: start ? time.format(timestampDate(start)) : "",
    succeeded: Number(attempts - failedAttempts),
    failed: Number(failedAttempts),
  };
}

function sum(buckets: HistoryBucket[], of: (bucket: HistoryBucket) => bigint): bigint {
  return buckets.reduce((total, bucket) => total + of(bucket), 0n);
}

/** The number of items shown. */
const SHOWN = 10;
/** The interval between refreshes, in milliseconds. */
const RUNS_REFRESH_MS = 3_000;

/** The last dispatch runs: when, for how long, and what they did. */
export function Runs() {
  const runs = useQuery(
    StatsService.method.listDispatchRuns,
    { pageSize: SHOWN },
    { refetchInterval: RUNS_REFRESH_MS },
  );
  return (
    <Refreshed query={runs} loading={<Loading lines={SHOWN} />}>
      {(last) => <RunTable runs={last.runs} />}
    </Refreshed>
  );
}

function RunTable({ runs }: { runs: readonly DispatchRun[] }) {
  if (runs.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        None yet. A run starts by itself when something is pending, at the latest with the next minute.
      </Text>
    );
  }
  return (
    <Table.ScrollContainer minWidth={300}>
      <Table verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Started</Table.Th>
            <Table.Th visibleFrom="sm">Took</Table.Th>
            <Table.Th ta="right" visibleFrom="md">
              Attempts
            </Table.Th>
            <Table.Th ta="right">Delivered</Table.Th>
            <Table.Th ta="right">Failed</Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              In Temporal
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {runs.map((run) => (
            <Run key={run.runId} run={run} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Run({ run }: { run: DispatchRun }) {
  const { started, closed, attempts, delivered, failed, url } = run;
  return (
    <Table.Tr>
      <Table.Td>
        <Time value={started} relative />
      </Table.Td>
      <Table.Td visibleFrom="sm">
        {closed && started ? (
          durationInWords(timestampMs(closed) - timestampMs(started))
        ) : (
          <Badge variant="light" tt="none">
            Under way
          </Badge>
        )}
      </Table.Td>
      <Table.Td ta="right" visibleFrom="md">
        {attempts.toLocaleString()}
      </Table.Td>
      <Table.Td ta="right">{delivered.toLocaleString()}</Table.Td>
      <Table.Td ta="right">{failed.toLocaleString()}</Table.Td>
      <Table.Td ta="right" visibleFrom="sm">
        {url === undefined ? (
          <Text
            span
            size="sm"
            c="dimmed"
            title="The service knows of no Temporal UI: TEMPORAL_UI_URL names it"
          >
            –
          </Text>
        ) : (
          <Anchor href={url} target="_blank" rel="noreferrer" size="sm">
            Open <IconExternalLink size={14} aria-label="in a new tab" />
          </Anchor>
        )}
      </Table.Td>
    </Table.Tr>
  );
}
