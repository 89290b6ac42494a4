import { Button, Group, Text } from "@mantine/core";
import { countOf } from "../text/count-of.ts";

/** How far a list has been read. */
export interface LoadMoreProps {
  /** How many are shown. */
  shown: number;
  /** What they are, one and many of them: "key", "keys". */
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
