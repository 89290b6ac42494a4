import { useMutation } from "@connectrpc/connect-query";
import { Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useNavigate } from "react-router";
import { WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";
import { useUndelivered } from "./use-undelivered.ts";
import type { WebhookDialogProps } from "./webhook-dialog-props.ts";
import { WebhookInWords } from "./webhook-in-words.tsx";

/** Asks before a webhook is deleted, says what becomes of its deliveries, and goes back to the list. */
export function DeleteWebhook({ webhook, opened, onClose }: WebhookDialogProps) {
  const remove = useMutation(WebhookService.method.deleteWebhook);
  const readAnew = useReadAnew();
  const navigate = useNavigate();
  const undelivered = useUndelivered(webhook.id, opened);
  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title="Delete this webhook?"
      confirm="Delete webhook"
      danger
      onConfirm={async () => {
        await remove.mutateAsync({ webhookId: webhook.id });
        notifications.show({
          color: "green",
          title: "The webhook is deleted",
          message: `${processName(webhook.webhookProcess)} is no longer sent to ${webhook.url}`,
        });
        await navigate(PAGE_PATHS.webhooks, { replace: true });
        void readAnew(WebhookService);
      }}
    >
      <WebhookInWords webhook={webhook} />
      <Text size="sm" mih="4lh">
        No more events are sent there. {cancelInWords(undelivered)} Past deliveries stay in the log. The
        signing secret is deleted; registering the URL again creates a new one.
      </Text>
    </ConfirmDialog>
  );
}

/** @param undelivered as useUndelivered has it */
function cancelInWords(undelivered: string | undefined): string {
  if (undelivered === undefined) return "Undelivered deliveries are cancelled.";
  if (undelivered === "") return "Nothing waits to be delivered at the moment.";
  const begun = undelivered.charAt(0).toUpperCase() + undelivered.slice(1);
  return `${begun} not delivered yet ${undelivered === "1 delivery" ? "is" : "are"} cancelled.`;
}
