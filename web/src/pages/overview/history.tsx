import { timestampDate } from "@bufbuild/protobuf/wkt";
import { BarChart } from "@mantine/charts";
import { Box, Skeleton } from "@mantine/core";
import {
  type GetHistoryResponse,
  type HistoryBucket,
  StatsService,
} from "../../../../gen/webhook/v1/stats_pb.ts";
import { useLive } from "../../api/queries.ts";
import { Refreshed } from "../../parts/failure.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import type { Period } from "../../parts/periods.tsx";
import { capitalized } from "../../parts/text/words.ts";
import { useZone, type ZoneFormats } from "../../parts/time.tsx";
import { useCustomerFilter } from "../customers/filter.tsx";

import "@mantine/charts/styles.css";

/** The height in pixels. */
const HEIGHT = 200;
/** The number of intervals in the chart, and the distance between the times on its axis, by hours. */
const CHARTS = {
  1: { buckets: 60, everyMinutes: 10 },
  24: { buckets: 48, everyMinutes: 180 },
  168: { buckets: 56, everyMinutes: 1_440 },
};
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;

const SERIES = [
  { name: "succeeded", label: "Succeeded", color: "var(--chart-succeeded)" },
  { name: "failed", label: "Failed", color: "var(--chart-failed)" },
];

/** The attempts of a period by outcome. Attempts that will be retried count as failed. */
export function History({ period }: { period: Period }) {
  const { hours } = period;
  const history = useLive(
    StatsService.method.getHistory,
    { hours, buckets: CHARTS[hours].buckets, ...useCustomerFilter() },
    REFRESH_MS,
  );
  return (
    <Refreshed query={history} loading={<Skeleton height={HEIGHT} />}>
      {({ buckets }) => <Chart buckets={buckets} period={period} />}
    </Refreshed>
  );
}

function Chart({ buckets, period }: Pick<GetHistoryResponse, "buckets"> & { period: Period }) {
  const zone = useZone();
  const attempts = sum(buckets, (bucket) => bucket.attempts);
  const failed = sum(buckets, ({ failedAttempts }) => failedAttempts);
  if (attempts === 0n) {
    return <Dimmed>No attempts were made {period.inWords}.</Dimmed>;
  }
  const data = buckets.map((bucket) => plotted(bucket, period, zone));
  return (
    <Box
      role="img"
      aria-label={`${capitalized(period.inWords)} ${(attempts - failed).toLocaleString()} attempts succeeded and ${failed.toLocaleString()} failed.`}
    >
      <BarChart
        h={HEIGHT}
        type="stacked"
        data={data}
        dataKey="time"
        series={SERIES}
        withLegend
        legendProps={{ verticalAlign: "top", align: "right" }}
        valueFormatter={(value) => value.toLocaleString()}
        xAxisProps={{
          ticks: data.filter(({ isRound }) => isRound).map(({ time }) => time),
          interval: "preserveStart",
          minTickGap: 8,
        }}
        yAxisProps={{ allowDecimals: false, width: "auto" }}
        barChartProps={{ accessibilityLayer: false }}
      />
    </Box>
  );
}

function plotted({ start, attempts, failedAttempts }: HistoryBucket, { hours }: Period, zone: ZoneFormats) {
  const at = zone.at(start && timestampDate(start));
  const format = hours > 24 ? zone.weekdayTime : zone.time;
  return {
    time: start ? format.format(timestampDate(start)) : "",
    /** Whether the time is one for the axis. */
    isRound: (at.hour() * 60 + at.minute()) % CHARTS[hours].everyMinutes === 0,
    succeeded: Number(attempts - failedAttempts),
    failed: Number(failedAttempts),
  };
}

function sum(buckets: HistoryBucket[], of: (bucket: HistoryBucket) => bigint): bigint {
  return buckets.reduce((total, bucket) => total + of(bucket), 0n);
}
