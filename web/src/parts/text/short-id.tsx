import { ActionIcon, Anchor, Group, VisuallyHidden } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { IconCheck, IconCopy } from "@tabler/icons-react";
import { Link } from "react-router";

/** The time for which the confirmation is shown, in milliseconds. */
const SHOWN_MS = 2_000;
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
  const { copy, copied } = useClipboard({ timeout: SHOWN_MS });
  return (
    <Group gap={2} wrap="nowrap" w="max-content">
      <Anchor component={Link} to={to} size="sm" ff="monospace" title={id}>
        <VisuallyHidden component="span">{id.slice(0, -CHARACTERS)}</VisuallyHidden>
        {id.slice(-CHARACTERS)}
      </Anchor>
      <ActionIcon
        size={18}
        variant="subtle"
        color={copied ? "green" : "gray"}
        aria-label={`Copy ${of}`}
        title={`Copy ${id}`}
        onClick={() => copy(id)}
      >
        {copied ? <IconCheck size={12} /> : <IconCopy size={12} />}
        <VisuallyHidden role="status">{copied ? "Copied" : ""}</VisuallyHidden>
      </ActionIcon>
    </Group>
  );
}
