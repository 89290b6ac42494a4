import { useLocalStorage } from "@mantine/hooks";
import { useMemo } from "react";

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
  };
}

const FORMATS: Record<Zone, ZoneFormats> = { local: formatsIn(undefined), utc: formatsIn("UTC") };

/** The chosen zone, kept in the browser, and what changes it; the same everywhere on the page. */
export function useZoneChoice(): [Zone, (zone: Zone) => void] {
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
