import { ActionIcon, Tooltip, VisuallyHidden } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { IconCheck, IconCopy, IconX } from "@tabler/icons-react";

/** The time for which the confirmation is shown, in milliseconds. */
const SHOWN_MS = 2_000;

/** The text to copy, and its name. */
export interface CopyButtonProps {
  value: string;
  /** The name of the text, for the button's label: "the delivery's id". */
  of: string;
}

/** Copies a text, and says whether that went well. */
export function CopyButton({ value, of }: CopyButtonProps) {
  const { copy, copied, error } = useClipboard({ timeout: SHOWN_MS });
  const said = error
    ? "Your browser does not allow it: select the text instead"
    : copied
      ? "Copied"
      : `Copy ${of}`;
  return (
    <Tooltip label={said} withArrow>
      <ActionIcon
        variant="subtle"
        color={error ? "red" : copied ? "green" : "gray"}
        aria-label={`Copy ${of}`}
        onClick={() => copy(value)}
      >
        {error ? <IconX size={16} /> : copied ? <IconCheck size={16} /> : <IconCopy size={16} />}
        <VisuallyHidden role="status">{copied || error ? said : ""}</VisuallyHidden>
      </ActionIcon>
    </Tooltip>
  );
}
