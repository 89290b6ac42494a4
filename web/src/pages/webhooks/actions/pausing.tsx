import { useMutation } from "@connectrpc/connect-query";
import { Alert, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconPlayerPause } from "@tabler/icons-react";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";
import { notifyFailure } from "../../../parts/status/notify-failure.ts";
import { Time } from "../../../parts/text/time.tsx";
import { useUndelivered } from "./use-undelivered.ts";
import type { WebhookDialogProps } from "./webhook-dialog-props.ts";
import { WebhookInWords } from "./webhook-in-words.tsx";

/** Asks before a webhook's deliveries are held back, and says what that means. */
export function PauseWebhook({ webhook, opened, onClose }: WebhookDialogProps) {
  const pause = useMutation(WebhookService.method.pauseWebhook);
  const readAnew = useReadAnew();
  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title="Pause this webhook?"
      confirm="Pause webhook"
      onConfirm={async () => {
        await pause.mutateAsync({ webhookId: webhook.id });
        await readAnew(WebhookService);
        notifications.show({ message: "The webhook is paused" });
      }}
    >
      <WebhookInWords webhook={webhook} />
      <Text size="sm">
        Events go on queueing for it, and nothing is sent until you resume it: no first attempts and no
        retries. An attempt that is under way is finished.
      </Text>
    </ConfirmDialog>
  );
}

/** Sends a paused webhook's deliveries again, and says how that went. */
export function useResume(webhook: Webhook): { run: () => void; isPending: boolean } {
  const resume = useMutation(WebhookService.method.resumeWebhook);
  const readAnew = useReadAnew();

  async function run() {
    try {
      await resume.mutateAsync({ webhookId: webhook.id });
      await readAnew(WebhookService);
      notifications.show({
        color: "green",
        title: "The webhook is resumed",
        message: "Pending deliveries are sent with the next dispatch.",
      });
    } catch (error) {
      notifyFailure("The webhook is still paused", error);
    }
  }
  return { run: () => void run(), isPending: resume.isPending };
}

/** Says that a webhook is paused, and what waits for it. */
export function PausedNotice({ webhook }: { webhook: Webhook }) {
  const waiting = useUndelivered(webhook.id, true);
  return (
    <Alert color="orange" variant="light" icon={<IconPlayerPause />} title="Paused">
      Its deliveries have been held back since <Time value={webhook.paused} />.{" "}
      {waiting && waitInWords(waiting)}
      {waiting === "" && "None waits yet. "}
      When it is resumed they are sent, from the oldest on, with the next dispatch.
    </Alert>
  );
}

/** @param waiting as useUndelivered has it */
function waitInWords(waiting: string): string {
  return `${waiting.charAt(0).toUpperCase()}${waiting.slice(1)} ${waiting === "1 delivery" ? "waits" : "wait"}. `;
}
