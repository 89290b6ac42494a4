import { Button, Group, Text } from "@mantine/core";
import { countOf } from "../text/count-of.ts";

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
