import { Alert } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { IconHourglass } from "@tabler/icons-react";
import { useState } from "react";
import { failureInWords, retryAfterSeconds } from "../api/failure.ts";

/** Says which limit refused the sign-in, and counts the wait down that the error names. */
export function TooManyTries({ error }: { error: unknown }) {
  const { title, text } = failureInWords(error);
  const wait = retryAfterSeconds(error) ?? 0;
  const [until] = useState(() => Date.now() + wait * 1_000);
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), 1_000, { autoInvoke: true });
  const left = Math.ceil((until - now) / 1_000);
  return (
    <Alert color="yellow" icon={<IconHourglass />} title={title} role="alert">
      {text.replace(`in ${wait} s`, left > 0 ? `in ${left} s` : "now")}
    </Alert>
  );
}
