import type { Scope } from "../../calls/index.ts";
import type { LimitsConfig } from "../../config/index.ts";
import type { HostWarnings, RequestTrial, TargetRules } from "../../contract/target-rules.ts";
import type { Db } from "../../lib/pg/index.ts";
import type { SecretBox } from "../secret-box.ts";
import type { OnDeleted } from "../webhook-deletion.ts";
import type { FilterParts } from "./filters.ts";

/** What the service of webhooks uses. */
export interface WebhookServiceParts extends FilterParts {
  /** Encrypts webhooks' signing secrets. */
  secrets: SecretBox;
  /** The rules for webhooks' target URLs. */
  targets: TargetRules;
  /** Warns of hosts that cannot be reached. Defaults to no warnings. */
  warningsOf?: HostWarnings;
  limits: Pick<LimitsConfig, "maxWebhooks">;
  /** Whether keys of installed apps list and delete webhooks of their app only. Defaults to false: those of their instance, as the contract says. */
  isolatesApps?: boolean;
  /** The timeout of a delivery, in milliseconds, as documented for callers. */
  deliveryTimeoutMs: number;
  /** Called after each write that queued deliveries. Returns at once. */
  onQueued?: () => void;
  /** Sends one test request. Undefined where requests cannot be tried. */
  tryRequest?: RequestTrial;
  onDeleted: OnDeleted;
  /** The retries of a webhook that have been due for more than a minute; null if there are none. */
  readOverdueRetries(db: Db, webhookId: bigint): Promise<{ count: number; oldestDue: Date } | null>;
  /** Queues a delivery of a test event. Null if the scope has no such live webhook. Requires a transaction. */
  queueTestEvent(
    trx: Db,
    scope: Scope,
    event: { apiKeyId: string; webhookId: bigint; process: number; payload: string },
  ): Promise<{ eventId: string; deliveryId: string } | null>;
}
