import type { Logger } from "pino";
import type { LimitsConfig } from "../config/config.ts";
import type { TargetRules } from "../contract/target-rules.ts";
import type { Db } from "../db/database.ts";
import type { SecretBox } from "../db/webhooks/secret-box.ts";
import type { ApiInstruments } from "../metrics/instruments.ts";

/** Everything the API stands on. */
export interface ApiContext {
  db: Db;
  /** Seals webhooks' signing secrets. */
  secrets: SecretBox;
  /** Which addresses webhooks may have. */
  targets: TargetRules;
  /** What callers may ask for. */
  limits: LimitsConfig;
  /** How long a receiver may take to answer, in milliseconds; callers are told. */
  deliveryTimeoutMs: number;
  /** Deliveries older than so many days are not sent again. */
  retentionDays: number;
  log: Logger;
  instruments: ApiInstruments;
  /** Told after each write that queued deliveries; returns at once. */
  onQueued?: () => void;
  /**
   * Starts a dispatch of what is pending; left out when the process knows no Temporal.
   *
   * @throws DomainError FAILED_PRECONDITION while the schedule is paused, UNAVAILABLE when Temporal does not answer
   */
  dispatchNow?: () => Promise<void>;
  /** Where the Temporal UI shows a workflow's execution; left out when no UI is known. */
  workflowUrl?: ((workflowId: string, runId: string) => string) | undefined;
  /** Why the rest of the process is not ready; empty when it is. The API checks the database itself. */
  readiness: () => Promise<string[]>;
}
