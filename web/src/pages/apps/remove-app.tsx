import { useMutation } from "@connectrpc/connect-query";
import { Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { ApiKeyService, type InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { useReadAnew } from "../../api/use-read-anew.ts";
import { ConfirmDialog } from "../../parts/dialogs/confirm-dialog.tsx";

/** Asks before an app is removed. */
export interface RemoveAppProps {
  opened: boolean;
  onClose: () => void;
  /** The app; the one before while the dialog is closed. */
  app: InstalledApp | undefined;
}

/** Removes an installed app for good. */
export function RemoveApp({ opened, onClose, app }: RemoveAppProps) {
  const remove = useMutation(ApiKeyService.method.deleteInstalledApp);
  const readAnew = useReadAnew();
  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={`Remove the app “${app?.name}”?`}
      confirm="Remove app"
      danger
      onConfirm={async () => {
        await remove.mutateAsync({ installedApplicationId: app?.id ?? "" });
        notifications.show({ color: "green", message: `The app “${app?.name}” is removed` });
        await readAnew(ApiKeyService);
      }}
    >
      <Text size="sm">
        An app can be removed once all its API keys are revoked and removed and its webhooks are deleted. The
        log of deliveries stays. This cannot be undone.
      </Text>
    </ConfirmDialog>
  );
}
