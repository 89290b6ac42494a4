import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";

/** The props of dialogs about one webhook. */
export interface WebhookDialogProps {
  webhook: Webhook;
  opened: boolean;
  onClose: () => void;
}
