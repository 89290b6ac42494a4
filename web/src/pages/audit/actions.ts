import { AuditAction, AuditActionSchema } from "../../../../gen/webhook/v1/audit_pb.ts";

/** The text of each action. */
const WORDS: Record<AuditAction, string> = {
  [AuditAction.UNSPECIFIED]: "Unknown action",
  [AuditAction.WEBHOOK_CREATED]: "Webhook created",
  [AuditAction.WEBHOOK_UPDATED]: "Webhook changed",
  [AuditAction.WEBHOOK_DELETED]: "Webhook deleted",
  [AuditAction.WEBHOOK_PAUSED]: "Webhook paused",
  [AuditAction.WEBHOOK_RESUMED]: "Webhook resumed",
  [AuditAction.WEBHOOK_TRANSFERRED]: "Webhook transferred",
  [AuditAction.WEBHOOK_SECRET_READ]: "Signing secret revealed",
  [AuditAction.WEBHOOK_SECRET_ROTATED]: "Signing secret rotated",
  [AuditAction.TEST_EVENT_SENT]: "Test event sent",
  [AuditAction.DELIVERY_SENT_AGAIN]: "Delivery sent again",
  [AuditAction.DELIVERIES_SENT_AGAIN]: "Deliveries sent again",
  [AuditAction.PAYLOADS_ERASED]: "Payloads erased",
  [AuditAction.API_KEY_CREATED]: "API key created",
  [AuditAction.API_KEY_RESTORED]: "API key restored",
  [AuditAction.API_KEY_ROTATED]: "API key rotated",
  [AuditAction.API_KEY_QUOTAS_CHANGED]: "API key quotas changed",
  [AuditAction.API_KEY_REVOKED]: "API key revoked",
  [AuditAction.API_KEY_DELETED]: "API key removed",
  [AuditAction.INSTALLED_APP_CREATED]: "App created",
  [AuditAction.INSTALLED_APP_DELETED]: "App removed",
  [AuditAction.DISPATCH_REQUESTED]: "Dispatch requested",
  [AuditAction.REQUEST_TRIED]: "Test request sent",
  [AuditAction.WEBHOOK_BREAKER_OPENED]: "Circuit breaker opened",
  [AuditAction.WEBHOOK_BREAKER_CLOSED]: "Circuit breaker closed",
  [AuditAction.WEBHOOK_DISABLED]: "Webhook disabled",
  [AuditAction.WEBHOOK_FILTER_STOPPED]: "Filter switched off",
  [AuditAction.REPLAY_STARTED]: "Replay started",
  [AuditAction.REPLAY_PAUSED]: "Replay paused",
  [AuditAction.REPLAY_RESUMED]: "Replay resumed",
  [AuditAction.REPLAY_CANCELLED]: "Replay cancelled",
  [AuditAction.ENDPOINT_CREATED]: "Endpoint created",
  [AuditAction.ENDPOINT_UPDATED]: "Event types changed",
  [AuditAction.ENDPOINT_DELETED]: "Endpoint deleted",
};

/** The words for an action; a later version of the service may know more. */
export function actionInWords(action: AuditAction): string {
  return WORDS[action] ?? WORDS[AuditAction.UNSPECIFIED];
}

/** Every action by its name in the address of the page. */
export const ACTIONS: readonly { name: string; action: AuditAction; label: string }[] =
  AuditActionSchema.values
    .filter(({ number }) => number !== AuditAction.UNSPECIFIED)
    .map(({ localName, number }) => {
      const action = number as AuditAction;
      return {
        name: localName.toLowerCase().replaceAll("_", "-"),
        action,
        label: actionInWords(action),
      };
    });
