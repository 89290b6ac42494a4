import { Button, type ButtonProps, Group } from "@mantine/core";
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
      <PageButton leftSection={<IconChevronsLeft size={16} />} leads={!isFirst} onClick={() => onGo("")}>
        Newest
      </PageButton>
      <PageButton
        leftSection={<IconChevronLeft size={16} />}
        leads={!isFirst && newer !== ""}
        onClick={() => onGo(newer)}
      >
        Newer
      </PageButton>
      <PageButton
        rightSection={<IconChevronRight size={16} />}
        leads={older !== ""}
        onClick={() => onGo(older)}
      >
        Older
      </PageButton>
    </Group>
  );
}

/** A button that keeps the focus where it leads no further; a disabled one would lose it. */
function PageButton({ leads, onClick, ...button }: ButtonProps & { leads: boolean; onClick: () => void }) {
  return (
    <Button
      {...button}
      variant="default"
      data-disabled={!leads}
      aria-disabled={!leads}
      onClick={leads ? onClick : undefined}
    />
  );
}
