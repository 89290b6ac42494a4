import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Alert, Button, type MantineSpacing, Skeleton, Stack, Text, VisuallyHidden } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconAlertCircle, IconPlugConnectedX } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { failureInWords } from "../api/failure.ts";
import { Time } from "./time.tsx";

/** An error, with a retry. */
export interface FailureProps {
  /** Without an error, nothing is shown. */
  error: unknown;
  /** The title, if that of the error does not name the failed action: "The key was not made". */
  title?: string;
  onRetry?: () => unknown;
  /** The space above and below it, outside of a stack. */
  my?: MantineSpacing;
}

/** Says what went wrong and what to do next. */
export function Failure({ error, title, onRetry, my }: FailureProps) {
  if (error === undefined || error === null) return null;
  const words = failureInWords(error);
  return (
    <Alert color="red" icon={<IconAlertCircle />} title={title ?? words.title} role="alert" my={my}>
      <Retry text={words.text} onRetry={onRetry} />
    </Alert>
  );
}

function Retry({ text, onRetry }: { text: string; onRetry: FailureProps["onRetry"] }) {
  return (
    <Stack align="flex-start" gap="sm">
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        {text}
      </Text>
      {onRetry && (
        <Button variant="default" onClick={() => void onRetry()}>
          Try again
        </Button>
      )}
    </Stack>
  );
}

/**
 * Says in passing that something could not be done, where no dialog stays open to say it. It stays until it is closed.
 *
 * @param what in a sentence without its end: "The webhook is still paused"
 */
export function notifyFailure(what: string, error: unknown): void {
  const { title, text } = failureInWords(error);
  notifications.show({ color: "red", title: `${what}. ${title}`, message: text, autoClose: false });
}

const WIDTHS = ["92%", "78%", "85%", "64%"];

/** Stands where something is being read, as high as that will be, so that nothing jumps. */
export function Loading({ lines = 4, height = 20 }: { lines?: number; height?: number }) {
  return (
    <Stack gap="sm" py="xs" aria-busy>
      <VisuallyHidden role="status">Loading</VisuallyHidden>
      {Array.from({ length: lines }, (_, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <Skeleton key={line} height={height} width={WIDTHS[line % WIDTHS.length]} />
      ))}
    </Stack>
  );
}

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
  if (data === undefined) return error ? <Failure error={error} onRetry={refetch} /> : loading;
  return (
    <>
      {error ? <Outdated error={error} readAt={dataUpdatedAt} onRetry={refetch} /> : null}
      {children(data)}
    </>
  );
}

function Outdated({ error, readAt, onRetry }: { error: unknown; readAt: number; onRetry: () => unknown }) {
  const { title, text } = failureInWords(error);
  // An absolute time: a relative one would be announced each time that it changes.
  const since = <Time value={timestampFromMs(readAt)} />;
  return (
    <Alert
      color="yellow"
      icon={<IconPlugConnectedX />}
      title={<>Not refreshed since {since}</>}
      role="status"
    >
      <Retry text={`${title}. ${text}`} onRetry={onRetry} />
    </Alert>
  );
}
