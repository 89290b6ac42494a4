import { Box, Button, Group, Stack, Text, ThemeIcon, Title } from "@mantine/core";
import { IconFilterOff, IconInbox, IconSend } from "@tabler/icons-react";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import type { ErrorReason } from "../../../src/contract/errors.ts";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { failureReason } from "../api/failure.ts";
import { Failure, Loading } from "./failure.tsx";
import { Dimmed } from "./inline.tsx";
import { countOf } from "./text/words.ts";

/** The text of an empty list, with the next step. */
export interface EmptyProps {
  /** "No webhooks yet". */
  title: string;
  /** The next step, in one or two sentences. */
  children?: ReactNode;
  /** A button or a link that does it. */
  action?: ReactNode;
  icon?: ReactNode;
}

/** Stands where a list is empty, and says what to do next. */
export function Empty({ title, children, action, icon = <IconInbox /> }: EmptyProps) {
  return (
    <Stack align="center" gap="sm" py="xl" px="md">
      <ThemeIcon size="xl" radius="xl" variant="light" color="gray" aria-hidden>
        {icon}
      </ThemeIcon>
      <Title order={2} size="h4" ta="center">
        {title}
      </Title>
      {children && (
        <Text c="dimmed" ta="center" maw={480} component="div">
          {children}
        </Text>
      )}
      {action && <Box mt="xs">{action}</Box>}
    </Stack>
  );
}

/** The search of a list that is not empty. */
export interface NothingFoundProps {
  /** The noun of the items: "webhook". */
  of: string;
  /** Takes the filters, or the search, away. */
  onClear: () => void;
  /** The reason, in a sentence. */
  children: ReactNode;
}

/** Stands where a list has nothing that its filters let through. */
export function NothingFound({ of, onClear, children }: NothingFoundProps) {
  function clear() {
    // The button disappears with the focus.
    document.getElementById("content")?.focus({ preventScroll: true });
    onClear();
  }

  return (
    <Empty
      icon={<IconFilterOff />}
      title={`No ${of} matches`}
      action={
        <Button variant="default" onClick={clear}>
          Clear the filters
        </Button>
      }
    >
      {children}
    </Empty>
  );
}

/** The progress of reading a list. */
interface LoadMoreProps {
  /** The number of items shown. */
  shown: number;
  /** The number of all, if it is known: "111". */
  total?: string | undefined;
  /** The noun of the items, singular and plural: "key", "keys". */
  of: readonly [one: string, many: string];
  hasMore: boolean;
  loading?: boolean;
  onMore: () => void;
}

/** Stands below a list of which a part is shown. */
function LoadMore({ shown, total, of, hasMore, loading = false, onMore }: LoadMoreProps) {
  return (
    <Group justify="space-between" gap="md" py="md">
      <Dimmed role="status">
        {hasMore && total !== undefined
          ? `${shown.toLocaleString()} of ${total} ${of[1]}`
          : `${countOf(shown, ...of)}${hasMore ? " shown" : ""}`}
      </Dimmed>
      {hasMore && (
        <Button variant="default" loading={loading} onClick={onMore}>
          Show more
        </Button>
      )}
    </Group>
  );
}

/** The number of items that are added to the shown ones. */
const STEP = 50;

/** A list that the page has, and what stands in its place when it is empty. */
export interface SomeProps<T> {
  items: readonly T[];
  /** The noun of the items, singular and plural: "key", "keys". */
  of: readonly [one: string, many: string];
  empty: ReactNode;
  children: (shown: readonly T[]) => ReactNode;
}

/** Shows a long list that is there already step by step, so that the page stays quick. */
export function Some<T>({ items, of, empty, children }: SomeProps<T>) {
  const [most, setMost] = useState(STEP);
  if (items.length === 0) return empty;
  const shown = items.slice(0, most);
  return (
    <>
      {children(shown)}
      <LoadMore
        shown={shown.length}
        of={of}
        hasMore={items.length > most}
        onMore={() => setMost((now) => now + STEP)}
      />
    </>
  );
}

/** A list that the service returns in pages; `list` is what `useInfiniteQuery` of connect-query returns. */
export interface PagesProps<T> extends Omit<SomeProps<T>, "items"> {
  list: {
    isError: boolean;
    error: unknown;
    isFetchNextPageError: boolean;
    isFetchingNextPage: boolean;
    hasNextPage: boolean;
    refetch: () => unknown;
    fetchNextPage: () => unknown;
  };
  /** The items of the pages that were read; undefined before the first. */
  items: readonly T[] | undefined;
  total?: string;
  /** The title of the error: "Could not load the replays". */
  failed: string;
  loading: ReactNode;
}

/** Shows the pages of a list that were read, and reads more of them on demand. */
export function Pages<T>({ list, items, total, of, failed, loading, empty, children }: PagesProps<T>) {
  const failure = list.isError && (
    <Failure error={list.error} title={failed} onRetry={list.refetch} my="sm" />
  );
  if (!items) return failure || loading;
  return (
    <>
      {!list.isFetchNextPageError && failure}
      {items.length === 0 ? empty : children(items)}
      {/* Where “Show more” was clicked. */}
      {list.isFetchNextPageError && failure}
      {items.length > 0 && (
        <LoadMore
          shown={items.length}
          total={total}
          of={of}
          hasMore={list.hasNextPage}
          loading={list.isFetchingNextPage}
          onMore={() => void list.fetchNextPage()}
        />
      )}
    </>
  );
}

/** A delivery or an event that is not shown, and why. */
export interface ItemStatusProps {
  query: { isPending: boolean; error: unknown; refetch: () => unknown };
  /** The reason of the error if the item does not exist: "DELIVERY_NOT_FOUND". */
  notFound: ErrorReason;
  /** The noun of the item: "delivery". */
  noun: string;
  /** The reason why the item may not exist, in a sentence. */
  children: ReactNode;
}

/** Stands where an item is not shown: it is loading, does not exist, or could not be loaded. */
export function ItemStatus({ query, notFound, noun, children }: ItemStatusProps) {
  if (query.isPending) return <Loading lines={12} height={32} />;
  const reason = failureReason(query.error);
  // An invalid id is that of no item.
  if (reason !== notFound && reason !== "FIELDS_INVALID") {
    return <Failure error={query.error} onRetry={query.refetch} />;
  }
  return (
    <Empty
      icon={<IconSend />}
      title={`There is no such ${noun}`}
      action={
        <Button component={Link} to={PAGE_PATHS.deliveries} variant="default">
          All deliveries
        </Button>
      }
    >
      {children}
    </Empty>
  );
}
