import { Button } from "@mantine/core";
import { IconFilterOff } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Empty } from "./empty.tsx";

/** What was looked for in a list that is not empty. */
export interface NothingFoundProps {
  /** What the list is of: "webhook". */
  of: string;
  /** Takes the filters, or the search, away. */
  onClear: () => void;
  /** Why, in a sentence. */
  children: ReactNode;
}

/** Stands where a list has nothing that its filters let through. */
export function NothingFound({ of, onClear, children }: NothingFoundProps) {
  return (
    <Empty
      icon={<IconFilterOff />}
      title={`No ${of} matches`}
      action={
        <Button variant="default" onClick={onClear}>
          Clear the filters
        </Button>
      }
    >
      {children}
    </Empty>
  );
}
