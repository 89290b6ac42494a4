import { Alert, Text } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { IconHourglass } from "@tabler/icons-react";
import { useState } from "react";
import { retryAfterSeconds } from "../api/failure.ts";

/** Says for how long no key is looked at, and when that is over. */
export function TooManyTries({ error }: { error: unknown }) {
  const [until] = useState(() => Date.now() + (retryAfterSeconds(error) ?? 60) * 1_000);
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), 1_000, { autoInvoke: true });
  const left = Math.ceil((until - now) / 1_000);
  return (
    <Alert color="yellow" icon={<IconHourglass />} title="Too many wrong keys" role="alert">
      <Text size="sm" c="var(--mantine-color-text)">
        {left > 0
          ? `So many wrong keys came from your address that no more are looked at. Try again in ${left} s.`
          : "Try again now."}
      </Text>
    </Alert>
  );
}
