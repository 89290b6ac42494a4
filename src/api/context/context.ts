import type { Tracer } from "@opentelemetry/api";
import type { Logger } from "pino";
import type { LimitsConfig } from "../../config/index.ts";
import type { RequestTrial, TargetRules } from "../../contract/target-rules.ts";
import type { FilterRunner } from "../../filters/index.ts";
import type { Db, StaleReads } from "../../lib/pg/index.ts";
import type { ApiInstruments } from "../../metrics/index.ts";
import type { WorkflowUrl } from "../../temporal/index.ts";
import type { SecretBox, Sign } from "../../webhooks/index.ts";

/** Dependencies of the API. */
export interface ApiContext {
  db: Db;
  /** Reads lists of deliveries, from a replica if there is one. Defaults to reading `db`. */
  reads?: StaleReads;
  /** Encrypts webhooks' signing secrets. */
  secrets: SecretBox;
  sign: Sign;
  /** Evaluates filters. */
  filters: FilterRunner;
  /** The rules for webhooks' target URLs. */
  targets: TargetRules;
  /** Limits for callers. */
  limits: LimitsConfig;
  /** The timeout of a delivery, in milliseconds, as documented for callers. */
  deliveryTimeoutMs: number;
  /** The age in days from which deliveries cannot be resent. */
  retentionDays: number;
  /** Whether the schema is that of this version. Until then, calls are refused with UNAVAILABLE. Defaults to true. */
  isPrepared?: () => boolean;
  /** Awaited before events are published: throws DomainError if this process may publish none. Defaults to nothing. */
  admit?: () => Promise<void> | undefined;
  /** Whether searchable values of payloads are stored for searches. */
  searchIndex: boolean;
  /** A monotonic clock in milliseconds, by which cached statistics get old. Defaults to `performance.now`. */
  now?: () => number;
  log: Logger;
  /** Told what the thread works on, such as a method. Defaults to nothing. */
  works?: (on: string) => void;
  instruments: ApiInstruments;
  /** Traces calls. Undefined where traces are not exported. */
  tracer?: Tracer | undefined;
  /** Called after each write that queued deliveries. Returns at once. */
  onQueued?: () => void;
  /**
   * Starts a dispatch of pending deliveries. Undefined if the process has no Temporal.
   *
   * @throws DomainError FAILED_PRECONDITION while the schedule is paused; UNAVAILABLE if Temporal does not respond
   */
  dispatchNow?: () => Promise<void>;
  /** The URL of a workflow's execution, or of an event of it, in the Temporal UI. Undefined without a UI. */
  workflowUrl?: WorkflowUrl | undefined;
  /**
   * Finds the activity of a run that sends a delivery of a retry group, or a first attempt if null. Undefined if the
   * process has no Temporal; its result is undefined if Temporal does not respond, or does not say which.
   */
  findActivity?: (
    run: { workflowId: string; runId: string },
    group: number | null,
  ) => Promise<{ runId: string; eventId: string } | undefined>;
  /** Sends one test request. Undefined where requests cannot be tried. */
  tryRequest?: RequestTrial;
  /** The reasons why the rest of the process is not ready; empty if ready. The API checks the database itself. */
  readiness: () => Promise<string[]>;
}
