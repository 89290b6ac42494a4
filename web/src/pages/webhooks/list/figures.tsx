import { createQueryOptions, useTransport } from "@connectrpc/connect-query";
import { Group, Skeleton, Text } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import {
  StatsService,
  type WebhookHistory,
  type WebhookStats,
} from "../../../../../gen/webhook/v1/stats_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { typeName } from "../../../api/type-names.ts";
import { Dimmed, deliveriesOf, PageLink } from "../../../parts/inline.tsx";
import type { Period } from "../../../parts/periods.tsx";
import { countOf, durationInWords } from "../../../parts/text/words.ts";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;
/** Rounded down, so that 100 % means that none failed. */
const PERCENT = new Intl.NumberFormat(undefined, {
  style: "percent",
  maximumFractionDigits: 1,
  roundingMode: "trunc",
});

/** The interval between refreshes of the attempts, in milliseconds. */
const HISTORY_REFRESH_MS = 30_000;

/** The figures of the webhooks that a list shows. */
export interface Figures {
  /** The deliveries of a webhook over the last day. Undefined until they are read, null if there were none. */
  lastDay: (id: bigint) => WebhookStats | null | undefined;
  /** Its attempts over the period; undefined until they are read. */
  history: (id: bigint) => WebhookHistory | undefined;
  /** The error of reading the deliveries, if any. */
  error: unknown;
  refetch: () => void;
}

/** The figures of some webhooks, read page by page and kept current. */
export function useFigures(pages: readonly (readonly Webhook[])[], period: Period): Figures {
  const transport = useTransport();
  const ids = pages.filter((page) => page.length > 0).map((page) => page.map(({ id }) => id));
  const { listWebhookStats, listWebhookHistory } = StatsService.method;
  const stats = useQueries({
    queries: ids.map((webhookIds) => ({
      ...createQueryOptions(listWebhookStats, { webhookIds }, { transport }),
      refetchInterval: REFRESH_MS,
    })),
  });
  const histories = useQueries({
    queries: ids.map((webhookIds) => ({
      ...createQueryOptions(listWebhookHistory, { webhookIds, hours: period.hours }, { transport }),
      refetchInterval: HISTORY_REFRESH_MS,
    })),
  });
  const lastDay = new Map<bigint, WebhookStats | null>();
  stats.forEach(({ data }, page) => {
    if (data) for (const id of ids[page] ?? []) lastDay.set(id, null);
    for (const each of data?.webhooks ?? []) lastDay.set(each.webhookId, each);
  });
  const history = new Map(
    histories.flatMap(({ data }) => data?.webhooks ?? []).map((each) => [each.webhookId, each]),
  );
  return {
    lastDay: (id) => lastDay.get(id),
    history: (id) => history.get(id),
    error: stats.find(({ error }) => error)?.error ?? null,
    refetch: () => stats.forEach((each) => void each.refetch()),
  };
}

/** The part of the deliveries that came to an end which arrived, 0 to 1; undefined while none has. */
export function successRate(of: Pick<WebhookStats, "delivered" | "failed">): number | undefined {
  const { delivered, failed } = of;
  const ended = delivered + failed;
  return ended === 0n ? undefined : Number(delivered) / Number(ended);
}

/** `99.2%`, as the viewer's language writes it. @param rate 0 to 1 */
export function percentage(rate: number): string {
  return PERCENT.format(rate);
}

/** The height in pixels, also while the data loads. */
const RATE_HEIGHT = 20;

/** A webhook's rate of success in the last day, and the counts that it is made of, which lead to its deliveries. */
export function Success({ of, figures }: { of: Webhook; figures: Figures }) {
  const stats = figures.lastDay(of.id);
  if (stats === undefined) {
    if (figures.error === null) return <Skeleton height={RATE_HEIGHT} width={150} />;
    return <DeliveriesLink of={of} text="Deliveries" />;
  }
  const rate = stats === null ? undefined : successRate(stats);
  if (!stats || rate === undefined) {
    const text = stats && stats.attempts > 0n ? attemptsFailed(stats) : "No deliveries";
    return <DeliveriesLink of={of} text={text} />;
  }
  return (
    <Group gap={6} wrap="nowrap" align="baseline">
      <Text size="sm" fw={500} className="figures">
        {percentage(rate)}
      </Text>
      <DeliveriesLink
        of={of}
        text={`${stats.delivered.toLocaleString()} delivered, ${stats.failed.toLocaleString()} failed`}
      />
    </Group>
  );
}

/** The attempts that failed, of which deliveries may still be retried. */
function attemptsFailed({ attempts, failedAttempts }: WebhookStats): string {
  if (failedAttempts === 0n) return "None has ended yet";
  return `${failedAttempts.toLocaleString()} of ${countOf(Number(attempts), "attempt", "attempts")} failed`;
}

/** Leads to a webhook's deliveries. */
function DeliveriesLink({ of: webhook, text }: { of: Webhook; text: string }) {
  return (
    <PageLink
      to={deliveriesOf(webhook.id)}
      size="xs"
      className="figures"
      aria-label={`Deliveries of ${typeName(webhook)} to ${webhook.url}: ${text}`}
      style={{ whiteSpace: "nowrap" }}
    >
      {text}
    </PageLink>
  );
}

/** The width in pixels. */
const WIDTH = 80;
/** The height in pixels. */
const HEIGHT = 20;
/** Between bars, in pixels. */
const GAP = 1;
/** The least height of a bar with attempts. */
const MIN_BAR = 2;

/** A webhook's attempts over time in a row of a list. */
export interface AttemptBarsProps {
  /** Undefined while it is read. */
  history: WebhookHistory | undefined;
  period: Period;
  /** Whether the number of attempts and the latency are shown, too. */
  inFull?: boolean;
}

/** Attempts by outcome over time as small bars, with their success rate in text. */
export function AttemptBars({ history, period, inFull = false }: AttemptBarsProps) {
  if (!history) return <Skeleton height={HEIGHT} width={WIDTH} />;
  if (history.attempts === 0n) return <Dimmed size="xs">No attempts</Dimmed>;
  const { attempts, failedAttempts, latencyP50Ms, latencyP95Ms } = history;
  const rate = percentage(Number(attempts - failedAttempts) / Number(attempts));
  return (
    <Group gap={8} wrap="nowrap">
      <Bars history={history} label={historyInWords(history, period)} />
      <Dimmed size="xs" lh={1.2} className="figures" component="div">
        {rate}
        {inFull && ` of ${attempts.toLocaleString()}`}
        {inFull && latencyP50Ms !== undefined && latencyP95Ms !== undefined && (
          <Group gap={8} wrap="nowrap">
            <Latency name="p50" ms={latencyP50Ms} />
            <Latency name="p95" ms={latencyP95Ms} />
          </Group>
        )}
      </Dimmed>
    </Group>
  );
}

function Latency({ name, ms }: { name: string; ms: number }) {
  return (
    <span style={{ whiteSpace: "nowrap" }}>
      {name} {durationInWords(ms)}
    </span>
  );
}

function Bars({ history, label }: { history: WebhookHistory; label: string }) {
  const { intervals } = history;
  const most = Math.max(...intervals.map(({ attempts }) => Number(attempts)));
  const width = (WIDTH - GAP * (intervals.length - 1)) / intervals.length;
  const scale = (n: bigint) => (n === 0n ? 0 : Math.max(MIN_BAR, (Number(n) / most) * HEIGHT));
  return (
    <svg role="img" aria-label={label} width={WIDTH} height={HEIGHT} style={{ display: "block" }}>
      <title>{label}</title>
      <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} className="bar-axis" />
      {intervals.map(({ start, attempts, failedAttempts }, index) => {
        const [all, failed] = [scale(attempts), Math.min(scale(failedAttempts), scale(attempts))];
        const x = index * (width + GAP);
        return (
          <g key={String(start?.seconds)}>
            <rect x={x} y={HEIGHT - all} width={width} height={all - failed} className="bar-succeeded" />
            <rect x={x} y={HEIGHT - failed} width={width} height={failed} className="bar-failed" />
          </g>
        );
      })}
    </svg>
  );
}

/** `120 attempts in the last 24 hours, 3 failed; p50 12 ms, p95 80 ms.` */
export function historyInWords(history: WebhookHistory, period: Period): string {
  const { attempts, failedAttempts, latencyP50Ms, latencyP95Ms } = history;
  const counts = `${attempts.toLocaleString()} attempts ${period.inWords}, ${failedAttempts.toLocaleString()} failed`;
  if (latencyP50Ms === undefined || latencyP95Ms === undefined) return `${counts}.`;
  return `${counts}; p50 ${durationInWords(latencyP50Ms)}, p95 ${durationInWords(latencyP95Ms)}.`;
}
