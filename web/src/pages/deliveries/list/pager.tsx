import { Button, Group } from "@mantine/core";
import { IconChevronLeft, IconChevronRight, IconChevronsLeft } from "@tabler/icons-react";

/** The previous and next pages, by their tokens. */
export interface PagerProps {
  isFirst: boolean;
  newer: string;
  older: string;
  /** Goes to a page; "" is the first one. */
  onGo: (token: string) => void;
}

/** Goes through a list that is newest first. */
export function Pager({ isFirst, newer, older, onGo }: PagerProps) {
  return (
    <Group component="nav" aria-label="Pages of the list" justify="center" gap="sm" py="md">
      <Button
        variant="default"
        leftSection={<IconChevronsLeft size={16} />}
        disabled={isFirst}
        onClick={() => onGo("")}
      >
        Newest
      </Button>
      <Button
        variant="default"
        leftSection={<IconChevronLeft size={16} />}
        disabled={isFirst || newer === ""}
        onClick={() => onGo(newer)}
      >
        Newer
      </Button>
      <Button
        variant="default"
        rightSection={<IconChevronRight size={16} />}
        disabled={older === ""}
        onClick={() => onGo(older)}
      >
        Older
      </Button>
    </Group>
  );
}
