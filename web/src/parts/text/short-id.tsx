import { Anchor, Group, VisuallyHidden } from "@mantine/core";
import { Link } from "react-router";
import { CopyButton } from "./copy-button.tsx";

/** The number of characters shown. */
const CHARACTERS = 8;

/** An id in a list. */
export interface ShortIdProps {
  id: string;
  /** The name of the id, for the button that copies it in full: "the delivery’s id". */
  of: string;
  /** The page of what it names. */
  to: string;
}

/** The end of a UUID, which differs where its start, the time, is the same; a button copies it in full. */
export function ShortId({ id, of, to }: ShortIdProps) {
  return (
    <Group gap={2} wrap="nowrap" w="max-content">
      <Anchor component={Link} to={to} size="sm" ff="monospace" title={id}>
        <VisuallyHidden component="span">{id.slice(0, -CHARACTERS)}</VisuallyHidden>
        {id.slice(-CHARACTERS)}
      </Anchor>
      <CopyButton value={id} of={of} small />
    </Group>
  );
}
