import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Button, Group, Text } from "@mantine/core";
import { Time } from "../../../parts/text/time.tsx";

/** A search that stopped before it had filled its page. */
export interface SearchFurtherProps {
  searchedBackTo: Timestamp;
  onGo: () => void;
}

/** Says how far back a search came whose filters let few deliveries through, and offers to continue. */
export function SearchFurther({ searchedBackTo, onGo }: SearchFurtherProps) {
  return (
    <Group role="status" justify="center" py="md" gap="sm">
      <Text size="sm" c="dimmed">
        Few deliveries match. Searched back to <Time value={searchedBackTo} />.
      </Text>
      <Button variant="default" size="xs" onClick={onGo}>
        Search further back
      </Button>
    </Group>
  );
}
