import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Alert, Button, type MantineSpacing, Skeleton, Stack, Text, VisuallyHidden } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconAlertCircle, IconPlugConnectedX } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { ASK_AGAIN_MS, onAwayChange, useAwaySince } from "../api/away.ts";
import { failureInWords, wasAnswered } from "../api/failure.ts";
import { Time } from "./time.tsx";

/** Says once, above all that is shown, that the service does not answer. */
export function AwayNotice() {
  const since = useAwaySince();
  if (since === undefined) return null;
  return (
    <Alert
      color="yellow"
      icon={<IconPlugConnectedX />}
      title="The service does not answer"
      role="alert"
      mb="md"
    >
      What is shown is from before <Time value={timestampFromMs(since)} />. The page tries again every{" "}
      {ASK_AGAIN_MS / 1_000} seconds.
    </Alert>
  );
}

/** Whether an error says no more than the notice above all that is shown. */
function useIsTold(error: unknown): boolean {
  return useAwaySince() !== undefined && error !== undefined && !wasAnswered(error);
}

/** An error, with a retry. */
export interface FailureProps {
  /** Without an error, nothing is shown. */
  error: unknown;
  /** The title, if that of the error does not name the failed action: "The key was not made". */
  title?: string;
  onRetry?: () => unknown;
  /** The space above and below it, outside of a stack. */
  my?: MantineSpacing;
  /** Whether it is shown where nothing else says that the service does not answer. */
  alone?: boolean;
}

/** Says what went wrong and what to do next. What could not be read because the service is away is still on its way. */
export function Failure({ error, title, onRetry, my, alone = false }: FailureProps) {
  const isAway = useAwaySince() !== undefined;
  const isTold = useIsTold(error);
  if (error === undefined || error === null) return null;
  if (isTold && onRetry && !alone) return <Loading lines={2} />;
  const words = failureInWords(error, isAway);
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
  if (!wasAnswered(error)) unanswered.add(what);
  tellFailure(what, error, wasAnswered(error) ? what : AWAY);
}

/** What failed because the service did not answer: one notice tells it all. */
const unanswered = new Set<string>();
const AWAY = "away";

function tellFailure(what: string, error: unknown, id: string): void {
  const { title, text } = failureInWords(error);
  const subject = id === AWAY ? [...unanswered].join("; ") : what;
  const notice = {
    id,
    color: "red",
    title: `${subject}: ${title.charAt(0).toLowerCase()}${title.slice(1)}`,
    message: text,
    autoClose: false,
    onClose: () => id === AWAY && unanswered.clear(),
  };
  // Each does nothing where the other one is meant.
  notifications.update(notice);
  notifications.show(notice);
  if (id !== AWAY) return;
  const stop = onAwayChange(() => {
    stop();
    if (unanswered.size > 0) tellFailure(what, error, id);
  });
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
  const isTold = useIsTold(error);
  if (isTold) return null;
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
