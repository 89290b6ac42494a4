import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { Text, type TextProps } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { useState } from "react";
import { useZone } from "../time/zone.ts";

const FROM_NOW = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
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

/** How a time is shown. */
export interface TimeProps extends TextProps {
  value: Timestamp | undefined;
  /** How long ago, or in how long: for what is recent. */
  relative?: boolean;
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
  const utc = date.toISOString();
  return (
    <Text
      component="time"
      inherit
      dateTime={utc}
      title={`${relative ? `${full.format(date)}, ` : ""}${utc.slice(0, 19).replace("T", " ")} UTC`}
      style={{ whiteSpace: "nowrap" }}
      {...text}
    >
      {relative ? <FromNow date={date} /> : full.format(date)}
    </Text>
  );
}

function FromNow({ date }: { date: Date }) {
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), REFRESH_MS, { autoInvoke: true });
  return fromNow(date.getTime() - now);
}

/** `3 minutes ago`, `in 2 hours`, from the milliseconds until then. */
export function fromNow(ms: number): string {
  const [unit, length] = UNITS.find(([, each]) => Math.abs(ms) >= each) ?? ["second", 1_000];
  return FROM_NOW.format(Math.trunc(ms / length), unit);
}
