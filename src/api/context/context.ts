import type { Tracer } from "@opentelemetry/api";
import type { Logger } from "pino";
import type { LimitsConfig } from "../../config/index.ts";
import type { Db } from "../../lib/pg/index.ts";
import type { ApiInstruments } from "../../metrics/index.ts";

/** Dependencies of the API: what calls need before they reach a service. */
export interface ApiContext {
  db: Db;
  log: Logger;
  tracer?: Tracer | undefined;
  /** Limits for callers. */
  limits: LimitsConfig;
  instruments: ApiInstruments;
  /** The timeout of a delivery, in milliseconds, as documented for callers. */
  deliveryTimeoutMs: number;
  /** Whether the schema is that of this version. Until then, calls are refused with UNAVAILABLE. Defaults to true. */
  isPrepared?: () => boolean;
  /** Told what the thread works on, such as a method. Defaults to nothing. */
  works?: (on: string) => void;
  /** The reasons why the rest of the process is not ready; empty if ready. The API checks the database itself. */
  readiness: () => Promise<string[]>;
}
