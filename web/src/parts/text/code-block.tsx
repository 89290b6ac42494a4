import { Box, Code, type CodeProps } from "@mantine/core";
import { CopyButton } from "./copy-button.tsx";

/** Code, JSON, or whatever is read as it is written. */
export interface CodeBlockProps extends CodeProps {
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
export function CodeBlock({ children, of, copied, maxHeight = 320, wraps = false, ...code }: CodeBlockProps) {
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
        {...code}
      >
        {children}
      </Code>
      <Box pos="absolute" top={6} right={6} bg="var(--mantine-color-body)" bdrs="md">
        <CopyButton value={copied ?? children} of={of} />
      </Box>
    </Box>
  );
}
