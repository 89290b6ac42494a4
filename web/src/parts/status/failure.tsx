import { Alert, Button, type MantineSpacing, Stack, Text } from "@mantine/core";
import { IconAlertCircle } from "@tabler/icons-react";
import { failureInWords } from "../../api/failure.ts";

/** An error, with a retry. */
export interface FailureProps {
  error: unknown;
  /** The title, if that of the error does not name the failed action: "The key was not made". */
  title?: string;
  onRetry?: () => void;
  /** The space above and below it, outside of a stack. */
  my?: MantineSpacing;
}

/** Says what went wrong and what to do next. */
export function Failure({ error, title, onRetry, my }: FailureProps) {
  const words = failureInWords(error);
  return (
    <Alert
      color="red"
      variant="light"
      icon={<IconAlertCircle />}
      title={title ?? words.title}
      role="alert"
      my={my}
    >
      <Stack align="flex-start" gap="sm">
        <Text size="sm" style={{ overflowWrap: "anywhere" }}>
          {words.text}
        </Text>
        {onRetry && (
          <Button size="xs" variant="default" onClick={onRetry}>
            Try again
          </Button>
        )}
      </Stack>
    </Alert>
  );
}
