import type { AuditAction, AuditRecord } from "../audit/index.ts";
import type { Owned } from "../calls/index.ts";
import { type DeliveryFilter, filterFacts } from "../log/index.ts";

/** The entry about a replay. @param filter `search` without secrets; `process` as for webhooks, 0 for several types */
export function replayEntry(
  action: Extract<AuditAction, `replay_${string}`>,
  replay: Owned & { id: string; kind: string },
  filter: Pick<DeliveryFilter, "webhookId" | "eventId" | "states" | "from" | "to"> & {
    process: number;
    search: string | undefined;
  },
): AuditRecord {
  const { process, webhookId } = filter;
  return {
    action,
    target: { id: replay.id, name: null, customer: replay.customer, appId: replay.installedAppId, process },
    after: {
      kind: replay.kind,
      ...(webhookId === undefined ? {} : { webhook_id: String(webhookId) }),
      ...filterFacts(filter),
    },
  };
}
