import { Box, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

/** What is told, in order: what it is, and what it is here. */
export interface FactsProps {
  facts: readonly [name: string, value: ReactNode][];
  /** For short values: beside their names on a narrow screen too. */
  inline?: boolean;
}

/** Names and values, one under the other; on a narrow screen a name stands above its value. */
export function Facts({ facts, inline = false }: FactsProps) {
  return (
    <Stack component="dl" gap="sm" m={0}>
      {facts.map(([name, value]) => (
        <Box
          key={name}
          display={inline ? "flex" : { base: "block", xs: "flex" }}
          style={{ gap: "var(--mantine-spacing-md)" }}
        >
          <Text
            component="dt"
            size="sm"
            c="dimmed"
            w={inline ? 130 : { base: "auto", xs: 130 }}
            style={{ flexShrink: 0 }}
          >
            {name}
          </Text>
          <Text component="dd" size="sm" m={0} miw={0} style={{ overflowWrap: "anywhere" }}>
            {value}
          </Text>
        </Box>
      ))}
    </Stack>
  );
}
