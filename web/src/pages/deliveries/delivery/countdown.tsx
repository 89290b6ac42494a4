import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import { Text } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { useState } from "react";

/** How long it is until a moment, second by second: `in 4:59`. */
export function Countdown({ until }: { until: Timestamp }) {
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), 1_000, { autoInvoke: true });
  const seconds = Math.ceil((timestampMs(until) - now) / 1_000);
  return (
    <Text
      component="time"
      inherit
      dateTime={new Date(timestampMs(until)).toISOString()}
      title={`${new Date(timestampMs(until)).toISOString().slice(0, 19).replace("T", " ")} UTC`}
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
