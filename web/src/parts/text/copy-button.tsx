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
  /** Whether the button fits a line of a list. */
  small?: boolean;
}

/** Copies a text, and says whether that went well. */
export function CopyButton({ value, of, small = false }: CopyButtonProps) {
  const { copy, copied, error } = useClipboard({ timeout: SHOWN_MS });
  const said = error
    ? "Your browser does not allow it: select the text instead"
    : copied
      ? "Copied"
      : `Copy ${of}`;
  const Icon = error ? IconX : copied ? IconCheck : IconCopy;
  return (
    <Tooltip label={said} withArrow>
      <ActionIcon
        variant="subtle"
        size={small ? 18 : "md"}
        color={error ? "red" : copied ? "green" : "gray"}
        aria-label={`Copy ${of}`}
        onClick={() => copy(value)}
      >
        <Icon size={small ? 12 : 16} />
        <VisuallyHidden role="status">{copied || error ? said : ""}</VisuallyHidden>
      </ActionIcon>
    </Tooltip>
  );
}
