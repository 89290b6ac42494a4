import { Box, Button, Group, Stack, Text, ThemeIcon, Title } from "@mantine/core";
import { IconFilterOff, IconInbox } from "@tabler/icons-react";
import { type ReactNode, useState } from "react";
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
export interface LoadMoreProps {
  /** The number of items shown. */
  shown: number;
  /** The noun of the items, singular and plural: "key", "keys". */
  of: readonly [one: string, many: string];
  hasMore: boolean;
  loading: boolean;
  onMore: () => void;
}

/** Stands below a list that is read page by page; `useInfiniteQuery` of connect-query has what it needs. */
export function LoadMore({ shown, of, hasMore, loading, onMore }: LoadMoreProps) {
  return (
    <Group justify="space-between" gap="md" py="md">
      <Text size="sm" c="dimmed" role="status">
        {countOf(shown, ...of)}
        {hasMore && " shown"}
      </Text>
      {hasMore && (
        <Button variant="default" size="xs" loading={loading} onClick={onMore}>
          Show more
        </Button>
      )}
    </Group>
  );
}

/** The number of items that are added to the shown ones. */
const STEP = 50;

/** The first of many items, and the way to more of them; what LoadMore needs. */
export interface Some<T> {
  shown: readonly T[];
  hasMore: boolean;
  onMore: () => void;
}

/** Shows a long list that is there already step by step, so that the page stays quick. */
export function useSome<T>(items: readonly T[], step = STEP): Some<T> {
  const [most, setMost] = useState(step);
  return {
    shown: items.slice(0, most),
    hasMore: items.length > most,
    onMore: () => setMost((now) => now + step),
  };
}
