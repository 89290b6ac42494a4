import { ChangedMeanwhile } from "../../../parts/dialogs/changed-meanwhile.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import type { WebhookUpdate } from "./use-webhook-update.ts";

/**
 * The error of an update that was not saved, with a button for the current values if somebody else changed the
 * webhook.
 */
export function UpdateFailure({ failure, isStale, takeCurrent }: WebhookUpdate) {
  if (failure === undefined) return null;
  return isStale ? <ChangedMeanwhile what="webhook" onReload={takeCurrent} /> : <Failure error={failure} />;
}
