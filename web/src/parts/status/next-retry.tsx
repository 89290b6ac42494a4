import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import { useInterval } from "@mantine/hooks";
import { useState } from "react";
import { Time } from "../text/time.tsx";
import { OVERDUE_AFTER_MS, overdueFor } from "./overdue.ts";

/** `next in 3 min`, or `retry overdue by 16 min`. */
export function NextRetry({ due }: { due: Timestamp }) {
  const late = useLateness(due);
  if (late > OVERDUE_AFTER_MS) return `retry overdue by ${overdueFor(late)}`;
  return (
    <>
      next <Time value={due} relative="short" />
    </>
  );
}

/** The time since a moment in milliseconds, updated every second. */
export function useLateness(due: Timestamp): number {
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), 1_000, { autoInvoke: true });
  return now - timestampMs(due);
}
