import type { LimitsConfig } from "../../config/index.ts";
import type { EventServiceParts } from "../../events/rpc/index.ts";
import type { DeliveryServiceParts } from "../../log/rpc/index.ts";
import type { ApiInstruments } from "../../metrics/index.ts";
import type { StatsParts } from "../../stats/rpc/index.ts";
import type { WebhookServiceParts } from "../../webhooks/rpc/index.ts";

/** What the API itself gives the service of webhooks, from modules above it. */
type Wired = "latestEvents" | "onDeleted" | "queueTestEvent" | "readOverdueRetries";

/** Dependencies of the API: what its services use, and what calls need before they reach one. */
export interface ApiContext
  extends EventServiceParts,
    DeliveryServiceParts,
    StatsParts,
    Omit<WebhookServiceParts, Wired> {
  /** Limits for callers. */
  limits: LimitsConfig;
  instruments: ApiInstruments;
  /** Whether the schema is that of this version. Until then, calls are refused with UNAVAILABLE. Defaults to true. */
  isPrepared?: () => boolean;
  /** Told what the thread works on, such as a method. Defaults to nothing. */
  works?: (on: string) => void;
  /** The reasons why the rest of the process is not ready; empty if ready. The API checks the database itself. */
  readiness: () => Promise<string[]>;
}
