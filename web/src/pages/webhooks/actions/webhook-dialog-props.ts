import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";

/** What every dialog about one webhook is told. */
export interface WebhookDialogProps {
  webhook: Webhook;
  opened: boolean;
  onClose: () => void;
}
