import { Button } from "@mantine/core";
import { IconFilterOff } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Empty } from "./empty.tsx";

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
