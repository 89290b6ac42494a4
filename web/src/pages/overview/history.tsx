import "@mantine/charts/styles.css";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { useQuery } from "@connectrpc/connect-query";
import { BarChart } from "@mantine/charts";
import { Box, Skeleton, Text } from "@mantine/core";
import {
  type GetHistoryResponse,
  type HistoryBucket,
  StatsService,
} from "../../../../gen/webhook/v1/stats_pb.ts";
import { Refreshed } from "../../parts/status/refreshed.tsx";
import { useZone, type ZoneFormats } from "../../parts/time/zone.ts";

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
