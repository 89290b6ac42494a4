import { type Timestamp, timestampDate, timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { BarChart } from "@mantine/charts";
import { Box, Group, RangeSlider, Skeleton, Text } from "@mantine/core";
import { lazy, Suspense, useState } from "react";
import { DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { type HistoryBucket, type Overview, StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useLive } from "../../api/queries.ts";
import { useMay, useOwnCustomer } from "../../api/session.tsx";
import { DialogButton } from "../../parts/dialogs.tsx";
import { Refreshed } from "../../parts/failure.tsx";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { type Period, PeriodSelect, periodOf } from "../../parts/periods.tsx";
import { Time, useZone, type ZoneFormats } from "../../parts/time.tsx";
import { useZoned } from "../../parts/zoned.ts";
import { useCustomerFilter } from "../customers/chosen.tsx";
import type { DeliveryFilter } from "../deliveries/filters.ts";

import "@mantine/charts/styles.css";

// Loaded when a part is selected.
const ExportDialog = lazy(async () => ({
  default: (await import("../deliveries/export-dialog.tsx")).ExportDialog,
}));
const SendFilteredDialog = lazy(async () => ({
  default: (await import("../deliveries/send-filtered.tsx")).SendFilteredDialog,
}));

/** The height, and the width of the axis on the left, in pixels. */
const HEIGHT = 200;
const AXIS_WIDTH = 48;
/**
 * The number of intervals in the chart, and the distance between the times on its axis, by hours. From a day on they are full hours, by
 * which the service counts what is longer ago.
 */
const CHARTS = {
  1: { buckets: 60, everyMinutes: 10 },
  24: { buckets: 24, everyMinutes: 180 },
  168: { buckets: 56, everyMinutes: 1_440 },
};
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;

const SERIES = [
  { name: "succeeded", label: "Succeeded", color: "var(--chart-succeeded)" },
  { name: "failed", label: "Failed", color: "var(--chart-failed)" },
];

/** The ends of a period, in milliseconds. */
type Span = [from: number, to: number];

/** The attempts of a period by outcome, of which a part can be selected. */
export function History({ overview }: { overview: Overview | undefined }) {
  const [period, setPeriod] = useState(periodOf(""));
  const [span, setSpan] = useState<Span>();
  const history = useLive(
    StatsService.method.getHistory,
    { hours: period.hours, buckets: CHARTS[period.hours].buckets, ...useCustomerFilter() },
    REFRESH_MS,
  );
  function choose(next: Period) {
    setPeriod(next);
    setSpan(undefined);
  }
  return (
    <Section title="Attempts" actions={<PeriodSelect period={period} onChange={choose} />}>
      <Refreshed query={history} loading={<Skeleton height={HEIGHT} />}>
        {({ buckets }) => (
          <Chart overview={overview} buckets={buckets} period={period} span={span} onSelect={setSpan} />
        )}
      </Refreshed>
    </Section>
  );
}

interface ChartProps {
  overview: Overview | undefined;
  buckets: readonly HistoryBucket[];
  period: Period;
  /** The selected part; undefined for all. */
  span: Span | undefined;
  onSelect: (span: Span | undefined) => void;
}

function Chart({ overview, buckets, period, span, onSelect }: ChartProps) {
  const zone = useZone();
  const zoned = useZoned();
  /** Where the pointer was pressed on the chart. */
  const [pressed, setPressed] = useState<number>();
  const count = buckets.length;
  const first = startOf(buckets[0]);
  const stepMs = (period.hours * 3_600_000) / count;
  const indexOf = (ms: number) => Math.min(count, Math.max(0, Math.round((ms - first) / stepMs)));
  const [from, to] = span ? [indexOf(span[0]), indexOf(span[1])] : [0, count];
  const isAll = to - from === count || to <= from;
  const data = buckets.map((bucket) => plotted(bucket, period, zone, zoned));
  const nameOf = (index: number) =>
    (period.hours > 24 ? zone.weekdayTime : zone.time).format(first + index * stepMs);
  function select(start: number, end: number) {
    onSelect(end - start === count ? undefined : [first + start * stepMs, first + end * stepMs]);
  }
  function drag({ activeTooltipIndex: at }: { activeTooltipIndex?: number | string | null | undefined }) {
    if (pressed === undefined || at === undefined || at === null) return;
    select(Math.min(pressed, Number(at)), Math.max(pressed, Number(at)) + 1);
  }
  if (buckets.every(({ attempts }) => attempts === 0n))
    return <Dimmed>No attempts were made {period.inWords}.</Dimmed>;
  const shown = data.slice(from, to);
  return (
    <>
      <Selected
        overview={overview}
        period={period}
        span={isAll ? undefined : span}
        all={[first, first + count * stepMs]}
      />
      <Box role="img" aria-label={`Attempts ${period.inWords} by outcome.`}>
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
          yAxisProps={{ allowDecimals: false, width: AXIS_WIDTH }}
          referenceAreas={
            isAll
              ? []
              : [
                  {
                    x1: shown[0]?.time ?? "",
                    x2: shown.at(-1)?.time ?? "",
                    color: "var(--mantine-color-anchor)",
                  },
                ]
          }
          barChartProps={{
            accessibilityLayer: false,
            onMouseDown: ({ activeTooltipIndex: at }) =>
              setPressed(at === undefined || at === null ? undefined : Number(at)),
            onMouseMove: drag,
            onMouseUp: (state) => {
              drag(state);
              setPressed(undefined);
            },
            style: { userSelect: "none" },
          }}
        />
      </Box>
      <RangeSlider
        size={4}
        thumbSize={14}
        // Below the bars.
        style={{ marginInlineStart: AXIS_WIDTH + 2, marginInlineEnd: 7 }}
        min={0}
        max={count}
        minRange={1}
        value={[from, to]}
        onChange={([start, end]) => select(start, end)}
        label={nameOf}
        thumbValueText={nameOf}
        thumbFromLabel="Start of the selection"
        thumbToLabel="End of the selection"
      />
    </>
  );
}

const startOf = (bucket: HistoryBucket | undefined) => (bucket?.start ? timestampMs(bucket.start) : 0);

function plotted(
  { start, attempts, failedAttempts }: HistoryBucket,
  { hours }: Period,
  zone: ZoneFormats,
  zoned: ReturnType<typeof useZoned>,
) {
  const at = zoned(start && timestampDate(start));
  const format = hours > 24 ? zone.weekdayTime : zone.time;
  return {
    time: start ? format.format(timestampDate(start)) : "",
    /** Whether the time is one for the axis. */
    isRound: (at.hour() * 60 + at.minute()) % CHARTS[hours].everyMinutes === 0,
    succeeded: Number(attempts - failedAttempts),
    failed: Number(failedAttempts),
  };
}

interface SelectedProps {
  overview: Overview | undefined;
  period: Period;
  /** The selected part; undefined for all. */
  span: Span | undefined;
  all: Span;
}

/** The figures of a period, compared with those of the period before, and what can be done with its deliveries. */
function Selected({ overview, period, span, all }: SelectedProps) {
  const [from, to] = span ?? all;
  const customer = useCustomerFilter();
  // What is followed live.
  const isDay = !span && period.hours === 24;
  const time = (ms: number) => timestampFromMs(ms);
  const { data } = useLive(
    StatsService.method.getHistory,
    { buckets: 2, from: time(from - (to - from)), to: time(to), ...customer },
    REFRESH_MS,
    !isDay,
  );
  const [before, now] = isDay ? daysOf(overview) : (data?.buckets ?? []);
  return (
    <Group justify="space-between" align="flex-end" gap="sm">
      <div>
        <Text size="sm" fw={500}>
          {span ? (
            <>
              <Time value={time(from)} /> to <Time value={time(to)} />
            </>
          ) : (
            <>The {period.label.replace(/^1 /, "")} up to now</>
          )}
        </Text>
        <Dimmed className="figures" role="group">
          {now && before ? <Figures now={now} before={before} /> : <Skeleton height={16} width={280} />}
        </Dimmed>
      </div>
      {span && (
        <Suspense>
          <Actions from={time(from)} to={time(to)} customer={customer} />
        </Suspense>
      )}
    </Group>
  );
}

type Counts = Pick<HistoryBucket, (typeof FIGURES)[number][0]>;

/** The last 24 hours, and the 24 hours before first. */
function daysOf(overview: Overview | undefined): Counts[] {
  if (!overview) return [];
  const { deliveredPreviousDay, failedPreviousDay, failedAttemptsPreviousDay } = overview;
  const { deliveredLastDay, failedLastDay, failedAttemptsLastDay } = overview;
  return [
    { delivered: deliveredPreviousDay, failed: failedPreviousDay, failedAttempts: failedAttemptsPreviousDay },
    { delivered: deliveredLastDay, failed: failedLastDay, failedAttempts: failedAttemptsLastDay },
  ];
}

const FIGURES = [
  ["delivered", "delivered"],
  ["failed", "failed finally"],
  ["failedAttempts", "failed attempts"],
] as const;

function Figures({ now, before }: { now: Counts; before: Counts }) {
  return FIGURES.map(([name, label], index) => (
    <span key={name}>
      {index > 0 && " · "}
      <Text
        span
        inherit
        fw={500}
        c={name === "failed" && now.failed > 0n ? "var(--mantine-color-error)" : "var(--mantine-color-text)"}
      >
        {now[name].toLocaleString()} {label}
      </Text>{" "}
      ({before[name].toLocaleString()} before)
    </span>
  ));
}

interface ActionsProps {
  from: Timestamp;
  to: Timestamp;
  customer: { customer?: string };
}

/** Lists, replays and exports the deliveries that were created in a period. */
function Actions({ from, to, customer }: ActionsProps) {
  const mayWrite = useMay("Write_Administrative_Data");
  const own = useOwnCustomer();
  // A replay is of what its key sees.
  const canReplay = mayWrite && (customer.customer === undefined || customer.customer === own);
  const filter: DeliveryFilter = { states: [], from, to, ...customer };
  const created = { from: timestampDate(from).toISOString(), to: timestampDate(to).toISOString() };
  return (
    <Group gap="xs">
      <PageLink to={listPage(PAGE_PATHS.deliveries, { ...created, ...customer })}>List deliveries</PageLink>
      {canReplay && (
        <DialogButton
          dialog={(dialog) => (
            <SendFilteredDialog {...dialog} filter={{ ...filter, states: [DeliveryState.FAILED] }} />
          )}
        >
          Replay failed…
        </DialogButton>
      )}
      <DialogButton dialog={(dialog) => <ExportDialog {...dialog} filter={filter} />}>Export…</DialogButton>
    </Group>
  );
}
