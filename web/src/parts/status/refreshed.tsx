import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Alert, Button, Stack, Text } from "@mantine/core";
import { IconPlugConnectedX } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { failureInWords } from "../../api/failure.ts";
import { Time } from "../text/time.tsx";
import { Failure } from "./failure.tsx";

/** A query that is read again from time to time. */
export interface RefreshedProps<T> {
  query: {
    data: T | undefined;
    error: unknown;
    /** The time of `data`, in milliseconds. */
    dataUpdatedAt: number;
    refetch: () => unknown;
  };
  /** Shown until the first read ends. */
  loading: ReactNode;
  children: (data: T) => ReactNode;
}

/** What was last read. After a failed refresh it stays, below a notice that says from when it is. */
export function Refreshed<T>({ query, loading, children }: RefreshedProps<T>) {
  const { data, error, dataUpdatedAt, refetch } = query;
  const retry = () => void refetch();
  if (data === undefined) return error ? <Failure error={error} onRetry={retry} /> : loading;
  return (
    <>
      {error ? <Outdated error={error} readAt={dataUpdatedAt} onRetry={retry} /> : null}
      {children(data)}
    </>
  );
}

interface OutdatedProps {
  error: unknown;
  readAt: number;
  onRetry: () => void;
}

function Outdated({ error, readAt, onRetry }: OutdatedProps) {
  const { title, text } = failureInWords(error);
  return (
    <Alert
      color="yellow"
      variant="light"
      icon={<IconPlugConnectedX />}
      // An absolute time: a relative one would be announced each time that it changes.
      title={
        <>
          Not refreshed since <Time value={timestampFromMs(readAt)} />
        </>
      }
      role="status"
    >
      <Stack align="flex-start" gap="sm">
        <Text size="sm" style={{ overflowWrap: "anywhere" }}>
          {title}. {text}
        </Text>
        <Button size="xs" variant="default" onClick={onRetry}>
          Try again
        </Button>
      </Stack>
    </Alert>
  );
}
