import { Card, Group, Stack, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

/** A part of a page. */
export interface SectionProps {
  title: string;
  /** The purpose of the section, in one or two sentences. */
  description?: ReactNode;
  /** Buttons and links, at the end of the title's line. */
  actions?: ReactNode;
  children?: ReactNode;
}

/** A part of a page with a heading. */
export function Section({ title, description, actions, children }: SectionProps) {
  return (
    <Card withBorder padding="lg" component="section" aria-label={title} h="100%">
      <Stack gap="md">
        <Group justify="space-between" align="flex-start" gap="sm">
          <Stack gap={4} miw={0} flex="1 1 16rem">
            <Title order={2} size="h4">
              {title}
            </Title>
            {description && (
              <Text size="sm" c="dimmed" maw={720} component="div">
                {description}
              </Text>
            )}
          </Stack>
          {actions && <Group gap="sm">{actions}</Group>}
        </Group>
        {children}
      </Stack>
    </Card>
  );
}
