import { useMutation } from "@connectrpc/connect-query";
import { Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { type ApiKey, ApiKeyService } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";

/** Asks before a revoked key is removed. */
export interface RemoveKeyProps {
  opened: boolean;
  onClose: () => void;
  /** The key; the one before while the dialog is closed. */
  apiKey: ApiKey | undefined;
}

/** Removes a revoked key for good. */
export function RemoveKey({ opened, onClose, apiKey }: RemoveKeyProps) {
  const remove = useMutation(ApiKeyService.method.deleteApiKey);
  const readAnew = useReadAnew();
  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={`Remove the revoked key “${apiKey?.name}”?`}
      confirm="Remove key"
      danger
      onConfirm={async () => {
        await remove.mutateAsync({ apiKeyId: apiKey?.id ?? "" });
        notifications.show({ color: "green", message: `“${apiKey?.name}” is removed` });
        await readAnew(ApiKeyService);
      }}
    >
      <Text size="sm">
        The key disappears from this list. The delivery log is kept. This cannot be undone.
      </Text>
    </ConfirmDialog>
  );
}
