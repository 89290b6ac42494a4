import { Alert, Button, Stack, Text } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { Failure } from "../../../parts/status/failure.tsx";
import type { WebhookUpdate } from "./use-webhook-update.ts";

/**
 * The error of an update that was not saved, with a button for the current values if somebody else changed the
 * webhook.
 */
export function UpdateFailure({ failure, isStale, takeCurrent }: WebhookUpdate) {
  if (failure === undefined) return null;
  return isStale ? <ChangedMeanwhile onReload={takeCurrent} /> : <Failure error={failure} />;
}

/** Says that nothing was saved because somebody else changed the webhook, with a button for the current values. */
export function ChangedMeanwhile({ onReload }: { onReload: () => void }) {
  return (
    <Alert
      color="orange"
      variant="light"
      icon={<IconRefresh />}
      role="alert"
      title="This webhook was changed meanwhile"
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
