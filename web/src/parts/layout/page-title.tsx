import { Group, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Breakable } from "../text/breakable.tsx";

/** The head of a page. */
export interface PageTitleProps {
  title: string;
  /** The title of the browser's tab. Defaults to the page's. */
  tab?: string;
  /** The purpose of the page, in a sentence. */
  description?: ReactNode;
  /** Buttons, at the end of the line. */
  actions?: ReactNode;
  /** Whether a list follows that needs the height. */
  compact?: boolean;
}

/** A page's one heading of the first order, with what can be done on the page. */
export function PageTitle({ title, tab = title, description, actions, compact = false }: PageTitleProps) {
  useDocumentTitle(`${tab} · Webhook service`);
  return (
    <Group justify="space-between" align="flex-start" gap="md" mb={compact ? "xs" : "lg"}>
      <Stack gap={4} miw={0}>
        <Title order={1} size={compact ? "h3" : "h2"} style={{ overflowWrap: "anywhere" }}>
          <Breakable text={title} />
        </Title>
        {description && (
          <Text c="dimmed" component="div" size={compact ? "sm" : "md"}>
            {description}
          </Text>
        )}
      </Stack>
      {actions && (
        <Group gap="sm" className="page-actions">
          {actions}
        </Group>
      )}
    </Group>
  );
}
