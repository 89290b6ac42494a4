import { Alert, Button, Stack, Text } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";

export interface ChangedMeanwhileProps {
  /** The noun of what was changed: "webhook". */
  what: string;
  /** Puts the current values into the fields. */
  onReload: () => void;
}

/** Says that nothing was saved because somebody else changed the same thing, with a button for the current values. */
export function ChangedMeanwhile({ what, onReload }: ChangedMeanwhileProps) {
  return (
    <Alert
      color="orange"
      variant="light"
      icon={<IconRefresh />}
      role="alert"
      title={`This ${what} was changed meanwhile`}
    >
      <Stack align="flex-start" gap="sm">
        <Text size="sm">Nothing was saved. Load the current values, then make your changes again.</Text>
        <Button size="xs" variant="default" onClick={onReload}>
          Load the current values
        </Button>
      </Stack>
    </Alert>
  );
}
