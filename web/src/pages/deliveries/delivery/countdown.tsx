import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { Text } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { useState } from "react";
import { inUtc } from "../../../../../src/contract/time-in-words.ts";

/** The time until a moment, updated every second: `in 4:59`. */
export function Countdown({ until }: { until: Timestamp }) {
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), 1_000, { autoInvoke: true });
  const date = timestampDate(until);
  const seconds = Math.ceil((date.getTime() - now) / 1_000);
  return (
    <Text
      component="time"
      inherit
      dateTime={date.toISOString()}
      title={inUtc(date)}
      ff="var(--mantine-font-family)"
      style={{ fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" }}
    >
      {seconds > 0 ? `in ${clock(seconds)}` : "any moment now"}
    </Text>
  );
}

function clock(seconds: number): string {
  const two = (part: number) => String(part).padStart(2, "0");
  const hours = Math.floor(seconds / 3_600);
  const minutes = Math.floor(seconds / 60) % 60;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}
