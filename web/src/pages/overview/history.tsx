import { timestampDate, timestampMs } from "@bufbuild/protobuf/wkt";
import { BarChart } from "@mantine/charts";
import { Badge, Box, Skeleton } from "@mantine/core";
import {
  type DispatchRun,
  type GetHistoryResponse,
  type HistoryBucket,
  StatsService,
} from "../../../../gen/webhook/v1/stats_pb.ts";
import { useLive } from "../../api/queries.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, TemporalLink } from "../../parts/inline.tsx";
import { DataTable } from "../../parts/listing.tsx";
import { durationInWords } from "../../parts/text/words.ts";
import { Time, useZone, type ZoneFormats } from "../../parts/time.tsx";
import { useCustomerFilter } from "../customers/filter.tsx";

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
  const history = useLive(
    StatsService.method.getHistory,
    { buckets: BUCKETS, ...useCustomerFilter() },
    REFRESH_MS,
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
    return <Dimmed>No attempts were made in the last 24 hours.</Dimmed>;
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
  const runs = useLive(StatsService.method.listDispatchRuns, { pageSize: SHOWN }, RUNS_REFRESH_MS);
  return (
    <Refreshed query={runs} loading={<Loading lines={SHOWN} />}>
      {(last) => <RunTable runs={last.runs} />}
    </Refreshed>
  );
}

function RunTable({ runs }: { runs: readonly DispatchRun[] }) {
  if (runs.length === 0) {
    return (
      <Dimmed>
        None yet. A run starts by itself when something is pending, at the latest with the next minute.
      </Dimmed>
    );
  }
  return (
    <DataTable
      items={runs}
      keyOf={({ runId }) => runId}
      minWidth={300}
      verticalSpacing="xs"
      columns={[
        { name: "Started", cell: ({ started }) => <Time value={started} relative /> },
        { name: "Took", visibleFrom: "sm", cell: took },
        {
          name: "Attempts",
          ta: "right",
          visibleFrom: "md",
          cell: ({ attempts }) => attempts.toLocaleString(),
        },
        { name: "Delivered", ta: "right", cell: ({ delivered }) => delivered.toLocaleString() },
        { name: "Failed", ta: "right", cell: ({ failed }) => failed.toLocaleString() },
        { name: "In Temporal", ta: "right", visibleFrom: "sm", cell: inTemporal },
      ]}
    />
  );
}

function took({ started, closed }: DispatchRun) {
  if (closed && started) return durationInWords(timestampMs(closed) - timestampMs(started));
  return (
    <Badge variant="light" tt="none">
      Under way
    </Badge>
  );
}

function inTemporal({ url }: DispatchRun) {
  if (url !== undefined) return <TemporalLink href={url}>Open</TemporalLink>;
  return (
    <Dimmed span title="The service knows of no Temporal UI: TEMPORAL_UI_URL names it">
      –
    </Dimmed>
  );
}
