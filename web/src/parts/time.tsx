import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { Button, type ButtonProps, Text, type TextProps } from "@mantine/core";
import { useInterval, useLocalStorage } from "@mantine/hooks";
import { IconWorld } from "@tabler/icons-react";
import { useMemo, useState } from "react";
import { inUtc } from "../../../src/contract/time-in-words.ts";

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
  const now = useNow(REFRESH_MS);
  return fromNow(date.getTime() - now, short);
}

/** The time, updated at an interval, all in milliseconds. */
export function useNow(intervalMs: number): number {
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), intervalMs, { autoInvoke: true });
  return now;
}

/** `3 minutes ago`, `in 2 hours`, short `3 min ago`, `in 2 hr`, from the milliseconds until then. */
export function fromNow(ms: number, short = false): string {
  const [unit, length] = UNITS.find(([, each]) => Math.abs(ms) >= each) ?? ["second", 1_000];
  const count = Math.trunc(ms / length);
  return (count === 0 ? NOW : short ? SHORT_FROM_NOW : FROM_NOW).format(count, unit);
}

/** The zone of displayed times: the viewer's or UTC. */
export type Zone = "local" | "utc";

/** Formats of times in the chosen zone. */
export interface ZoneFormats {
  /** `22 Nov 2026, 22:24:59 CET`. */
  full: Intl.DateTimeFormat;
  /** `22:24`. */
  time: Intl.DateTimeFormat;
  /** `Sun 22:24`. */
  weekdayTime: Intl.DateTimeFormat;
  /** The zone in short: `CET` or `UTC`. */
  name: string;
  /** The zone in words, to read after `in`. */
  inWords: string;
  isUtc: boolean;
}

function formatsIn(timeZone: string | undefined): ZoneFormats {
  const zoned = timeZone === undefined ? {} : { timeZone };
  const full = new Intl.DateTimeFormat(undefined, {
    ...zoned,
    day: "numeric",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
  });
  const clock = { ...zoned, hour: "2-digit", minute: "2-digit" } as const;
  return {
    full,
    time: new Intl.DateTimeFormat(undefined, clock),
    weekdayTime: new Intl.DateTimeFormat(undefined, { ...clock, weekday: "short" }),
    name: full.formatToParts().find(({ type }) => type === "timeZoneName")?.value ?? "UTC",
    inWords: timeZone ?? "your time zone",
    isUtc: timeZone !== undefined,
  };
}

const FORMATS: Record<Zone, ZoneFormats> = { local: formatsIn(undefined), utc: formatsIn("UTC") };

/** The chosen zone, kept in the browser, and what changes it; the same everywhere on the page. */
function useZoneChoice(): [Zone, (zone: Zone) => void] {
  const [zone, setZone] = useLocalStorage<Zone>({
    key: "time-zone",
    defaultValue: "local",
    getInitialValueInEffect: false,
  });
  return [zone === "utc" ? "utc" : "local", setZone];
}

/** The formats of the chosen zone. */
export function useZone(): ZoneFormats {
  const [zone] = useZoneChoice();
  return useMemo(() => FORMATS[zone], [zone]);
}

/** Says in which time zone times are shown, and changes between the viewer's zone and UTC. */
export function ZoneSwitch(props: Pick<ButtonProps, "visibleFrom" | "hiddenFrom">) {
  const [zone, setZone] = useZoneChoice();
  const { name } = useZone();
  const isUtc = zone === "utc";
  return (
    <Button
      variant="subtle"
      color="gray"
      size="compact-sm"
      {...props}
      leftSection={<IconWorld size={16} />}
      onClick={() => setZone(isUtc ? "local" : "utc")}
      title={isUtc ? "Show times in your time zone" : "Show times in UTC"}
      aria-label={`Times in ${name}. ${isUtc ? "Show times in your time zone" : "Show times in UTC"}`}
    >
      {name}
    </Button>
  );
}
