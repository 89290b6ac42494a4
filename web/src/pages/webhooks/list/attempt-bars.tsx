import { Group, Skeleton, Text } from "@mantine/core";
import type { WebhookHistory } from "../../../../../gen/webhook/v1/stats_pb.ts";
import type { Period } from "../../../parts/charts/periods.ts";
import { countOf } from "../../../parts/text/count-of.ts";
import { durationInWords } from "../../../parts/text/duration.ts";
import { percentage } from "./last-day.ts";

/** The width in pixels. */
const WIDTH = 100;
/** The height in pixels. */
const HEIGHT = 26;
/** Between bars, in pixels. */
const GAP = 1;
/** The least height of a bar with attempts. */
const MIN_BAR = 2;

/** A webhook's attempts over time in a row of a list. */
export interface AttemptBarsProps {
  /** Undefined while it is read. */
  history: WebhookHistory | undefined;
  period: Period;
  withLatency: boolean;
}

/** Attempts by outcome over time as small bars, with their success rate and the latency in text. */
export function AttemptBars({ history, period, withLatency }: AttemptBarsProps) {
  if (!history) return <Skeleton height={HEIGHT} width={WIDTH} />;
  if (history.attempts === 0n) {
    return (
      <Text size="xs" c="dimmed">
        No attempts
      </Text>
    );
  }
  const { latencyP50Ms, latencyP95Ms } = history;
  return (
    <Group gap={8} wrap="nowrap">
      <Bars history={history} label={historyInWords(history, period)} />
      <Text size="xs" c="dimmed" lh={1.2} className="figures" component="div">
        <Rate history={history} onTwoLines={!withLatency} />
        {withLatency && latencyP50Ms !== undefined && latencyP95Ms !== undefined && (
          <Group gap={8} wrap="nowrap">
            <Latency name="p50" ms={latencyP50Ms} />
            <Latency name="p95" ms={latencyP95Ms} />
          </Group>
        )}
      </Text>
    </Group>
  );
}

interface RateProps {
  history: WebhookHistory;
  onTwoLines: boolean;
}

/** The part of the attempts that succeeded, and the number of attempts. */
function Rate({ history: { attempts, failedAttempts }, onTwoLines }: RateProps) {
  const rate = percentage(Number(attempts - failedAttempts) / Number(attempts));
  return (
    <div
      title={`${rate} of ${countOf(Number(attempts), "attempt", "attempts")} succeeded`}
      style={{ whiteSpace: "nowrap" }}
    >
      {rate}
      {onTwoLines ? <br /> : " "}
      of {attempts.toLocaleString()}
    </div>
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
