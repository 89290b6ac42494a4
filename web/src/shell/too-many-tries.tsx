import { Alert } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { IconHourglass } from "@tabler/icons-react";
import { useState } from "react";
import { retryAfterSeconds } from "../api/failure.ts";

/** Says how long to wait before another try, and when that is over. */
export function TooManyTries({ error }: { error: unknown }) {
  const [until] = useState(() => Date.now() + (retryAfterSeconds(error) ?? 60) * 1_000);
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), 1_000, { autoInvoke: true });
  const left = Math.ceil((until - now) / 1_000);
  return (
    <Alert color="yellow" icon={<IconHourglass />} title="Too many wrong keys" role="alert">
      {left > 0
        ? `This key is unknown or revoked, and so were many that came from your address before it. Check it, and try again in ${left} s.`
        : "Check the key, and try again now."}
    </Alert>
  );
}
