import { Box, Stack, Text, ThemeIcon, Title } from "@mantine/core";
import { IconInbox } from "@tabler/icons-react";
import type { ReactNode } from "react";

/** The text of an empty list, with the next step. */
export interface EmptyProps {
  /** "No webhooks yet". */
  title: string;
  /** The next step, in one or two sentences. */
  children?: ReactNode;
  /** A button or a link that does it. */
  action?: ReactNode;
  icon?: ReactNode;
}

/** Stands where a list is empty, and says what to do next. */
export function Empty({ title, children, action, icon = <IconInbox /> }: EmptyProps) {
  return (
    <Stack align="center" gap="sm" py="xl" px="md">
      <ThemeIcon size="xl" radius="xl" variant="light" color="gray" aria-hidden>
        {icon}
      </ThemeIcon>
      <Title order={2} size="h4" ta="center">
        {title}
      </Title>
      {children && (
        <Text c="dimmed" ta="center" maw={480} component="div">
          {children}
        </Text>
      )}
      {action && <Box mt="xs">{action}</Box>}
    </Stack>
  );
}
