import {
  ActionIcon,
  Box,
  Center,
  Code,
  Group,
  PasswordInput,
  TextInput,
  Tooltip,
  VisuallyHidden,
} from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { IconCheck, IconCopy, IconX } from "@tabler/icons-react";
import { PageLink } from "../inline.tsx";

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

/** Code, JSON, or whatever is read as it is written. */
export interface CodeBlockProps {
  children: string;
  /** The name of the code, for the copy button and screen readers: "the sample". */
  of: string;
  /** The text that the button copies. Defaults to the shown text. */
  copied?: string;
  /** The maximum height in pixels; longer code scrolls. */
  maxHeight?: number;
  /** Whether long lines are broken; they scroll otherwise, as code does. */
  wraps?: boolean;
}

/** Several lines as they are written, with a button that copies them. */
export function CodeBlock({ children, of, copied, maxHeight = 320, wraps = false }: CodeBlockProps) {
  return (
    <Box pos="relative">
      <Code
        block
        // What scrolls must be reached by keyboard, and have a name then.
        tabIndex={0}
        role="region"
        aria-label={of}
        mah={maxHeight}
        pr={48}
        bd="1px solid var(--mantine-color-default-border)"
        style={{ overflow: "auto", whiteSpace: wraps ? "pre-wrap" : "pre" }}
      >
        {children}
      </Code>
      <Box pos="absolute" top={6} right={6} bg="var(--mantine-color-body)" bdrs="md">
        <CopyButton value={copied ?? children} of={of} />
      </Box>
    </Box>
  );
}

/** The number of characters shown. */
const CHARACTERS = 8;

/** An id in a list. */
export interface ShortIdProps {
  id: string;
  /** The name of the id, for the button that copies it in full: "the delivery’s id". */
  of: string;
  /** The page of what it names. */
  to: string;
  /** Whether that is open. */
  current?: boolean;
  preventScrollReset?: boolean;
}

/** The end of a UUID, which differs where its start, the time, is the same; a button copies it in full. */
export function ShortId({ id, of, to, current, preventScrollReset }: ShortIdProps) {
  return (
    <Group gap={2} wrap="nowrap" w="max-content">
      <PageLink
        to={to}
        ff="monospace"
        title={id}
        aria-current={current}
        preventScrollReset={preventScrollReset}
      >
        <VisuallyHidden component="span">{id.slice(0, -CHARACTERS)}</VisuallyHidden>
        {id.slice(-CHARACTERS)}
      </PageLink>
      <CopyButton value={id} of={of} small />
    </Group>
  );
}

/** A secret that is shown. */
export interface SecretProps {
  value: string;
  /** The name of the secret: "Signing secret". */
  label: string;
  /** Whether the secret is in clear: where a button before has revealed it. Otherwise a click on its eye does. */
  revealed?: boolean;
}

/** A secret, with a button that copies it. */
export function Secret({ value, label, revealed = false }: SecretProps) {
  const field = {
    label,
    value,
    readOnly: true,
    autoComplete: "off",
    spellCheck: false,
    style: { flexGrow: 1 },
    onFocus: (event: React.FocusEvent<HTMLInputElement>) => event.currentTarget.select(),
  };
  return (
    <Group align="flex-end" gap="xs" wrap="nowrap">
      {revealed ? (
        <TextInput {...field} styles={{ input: MONOSPACE }} />
      ) : (
        <PasswordInput
          {...field}
          styles={{ innerInput: MONOSPACE }}
          visibilityToggleButtonProps={{ "aria-label": `Show or hide: ${label}` }}
        />
      )}
      {/* As high as the field, so that the button is in its line. */}
      <Center h={36}>
        <CopyButton value={value} of={label} />
      </Center>
    </Group>
  );
}

const MONOSPACE = { fontFamily: "var(--mantine-font-family-monospace)" };
