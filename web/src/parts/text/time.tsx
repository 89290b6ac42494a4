import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { Text, type TextProps } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { useState } from "react";
import { inUtc } from "../../../../src/contract/time-in-words.ts";
import { useZone } from "../time/zone.ts";

/** Says `now`. Of other units it would say `yesterday` for up to 48 hours. */
const NOW = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const FROM_NOW = new Intl.RelativeTimeFormat(undefined, { numeric: "always" });
const SHORT_FROM_NOW = new Intl.RelativeTimeFormat(undefined, { numeric: "always", style: "short" });
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 10_000;

/** Units in milliseconds, the longest first. */
const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600_000],
  ["month", 2_629_800_000],
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
  ["second", 1_000],
];

/** The format of a time. */
export interface TimeProps extends TextProps {
  value: Timestamp | undefined;
  /** Whether recent times are shown relative to now: `16 minutes ago`, or short `16 min ago`. */
  relative?: boolean | "short";
  /** Shown where there is no time. */
  otherwise?: string;
}

/** A time in the chosen zone; a pointer held on it shows it in UTC, exactly. */
export function Time({ value, relative = false, otherwise = "–", ...text }: TimeProps) {
  const { full } = useZone();
  if (!value)
    return (
      <Text span inherit {...text}>
        {otherwise}
      </Text>
    );
  const date = timestampDate(value);
  return (
    <Text
      component="time"
      inherit
      dateTime={date.toISOString()}
      title={`${relative ? `${full.format(date)}, ` : ""}${inUtc(date)}`}
      style={{ whiteSpace: "nowrap" }}
      {...text}
    >
      {relative ? <FromNow date={date} short={relative === "short"} /> : full.format(date)}
    </Text>
  );
}

function FromNow({ date, short }: { date: Date; short: boolean }) {
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), REFRESH_MS, { autoInvoke: true });
  return fromNow(date.getTime() - now, short);
}

/** `3 minutes ago`, `in 2 hours`, short `3 min ago`, `in 2 hr`, from the milliseconds until then. */
export function fromNow(ms: number, short = false): string {
  const [unit, length] = UNITS.find(([, each]) => Math.abs(ms) >= each) ?? ["second", 1_000];
  const count = Math.trunc(ms / length);
  return (count === 0 ? NOW : short ? SHORT_FROM_NOW : FROM_NOW).format(count, unit);
}
