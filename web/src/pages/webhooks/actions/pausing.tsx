import { useMutation } from "@connectrpc/connect-query";
import { Alert } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconPlayerPause } from "@tabler/icons-react";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { notifyFailure } from "../../../parts/status/notify-failure.ts";
import { capitalized } from "../../../parts/text/capitalized.ts";
import { Time } from "../../../parts/text/time.tsx";
import { typesInWords } from "../endpoint/shared-note.tsx";
import { useEndpoint } from "../endpoint/use-endpoint.ts";
import { useUndelivered } from "./use-undelivered.ts";

/** An action of a button, and whether it is under way. */
export interface Action {
  run: () => void;
  isPending: boolean;
}

/** Holds a webhook's deliveries back, and says what that means. No question precedes it: Resume takes it back. */
export function usePause(webhook: Webhook): Action {
  const pause = useMutation(WebhookService.method.pauseWebhook);
  const readAnew = useReadAnew();
  const { webhooks, isKnown } = useEndpoint(webhook);

  async function run() {
    try {
      await pause.mutateAsync({ webhookId: webhook.id });
      await readAnew(WebhookService);
      notifications.show({
        title: isKnown && webhooks.length === 1 ? "The webhook is paused" : "The endpoint is paused",
        message: `Events of ${isKnown ? typesInWords(webhooks) : "all its event types"} queue until you resume it. An attempt that is under way is finished.`,
      });
    } catch (error) {
      notifyFailure("The webhook is not paused", error);
    }
  }
  return { run: () => void run(), isPending: pause.isPending };
}

/** Sends a paused webhook's deliveries again, and says how that went. */
export function useResume(webhook: Webhook): Action {
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
    // As an alert, each change of the count would be announced.
    <Alert color="orange" variant="light" icon={<IconPlayerPause />} title="Paused" role="note">
      Its deliveries have been held back since <Time value={webhook.paused} />.{" "}
      {waiting && waitInWords(waiting)}
      {waiting === "" && "None waits yet. "}
      When it is resumed they are sent, from the oldest on, with the next dispatch.
    </Alert>
  );
}

/** @param waiting as useUndelivered has it */
function waitInWords(waiting: string): string {
  return `${capitalized(waiting)} ${waiting === "1 delivery" ? "waits" : "wait"}. `;
}
