import pLimit, { type LimitFunction } from "p-limit";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";
import type { DeliveryConfig, DispatchConfig } from "../config.ts";
import type { Db } from "../db/database.ts";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import type { EventContent } from "../db/queue/event-contents.ts";
import { type SecretBox, UnopenableError } from "../db/secret-box.ts";
import { createAddressGuard } from "./address-guard.ts";
import { MarkList, Windows } from "./concurrency.ts";
import { type GatheredStatements, gatherStatements } from "./gathered-statements.ts";
import { NameResolver, type Resolver } from "./http/name-resolver.ts";
import { createHttpClient } from "./http-client.ts";
import { createMaintenance } from "./maintenance.ts";
import type { Outcome } from "./outcome.ts";
import { post } from "./post.ts";
import { type Recorded, Recorder } from "./recorder.ts";
import { buildRequest, NoPayloadError } from "./request.ts";
import { RetrySlots } from "./retry-slots.ts";
import { RetryTurns } from "./retry-turns.ts";
import { createSigner, type Signer } from "./signature.ts";
import { Slots } from "./slots.ts";
import { WorkerLease } from "./worker-lease.ts";

/** In flight or not yet recorded, a process: so many POSTs a crash can leave in doubt. */
const ALL_SLOTS = 192;
/** First attempts among them; they leave 32 to retries, however much is pending. */
const FIRST_ATTEMPT_SLOTS = 160;
/** Retries among them; they leave 128 to first attempts, however many webhooks fail. */
const RETRY_SLOTS = 64;
/** Claims of retries at once: hundreds of groups must not hold all connections to the database. */
const RETRY_CLAIMS = 4;
/** The most in flight to one webhook, and to one host. */
const MAX_IN_FLIGHT_EACH = 160;

/** A delivery that takes longer makes its webhook slow, in milliseconds. */
export const SLOW_MS = 1_000;
/** How long a webhook or host counts as slow after it was, unless it proves otherwise, in milliseconds. */
const SLOW_FOR_MS = 30_000;
/** How long a webhook's failure puts it behind the others: so often it gets its share, however much they have. */
const FAILING_FOR_MS = 5_000;

/** What all deliveries of a process share: the client, the signer, the recorder and the bounds. */
export interface DeliveryEngine {
  db: Db;
  log: Logger;
  client: Dispatcher;
  sign: Signer;
  recorder: Recorder;
  statements: GatheredStatements;
  lease: WorkerLease;
  /** Bounds the claims of retries that are under way at once. */
  limitRetryClaims: LimitFunction;
  firstAttempts: Slots;
  retries: RetrySlots;
  retryTurns: RetryTurns;
  webhooks: Windows<bigint>;
  hosts: Windows<string>;
  slowWebhooks: MarkList<bigint>;
  slowHosts: MarkList<string>;
  /** Those whose last attempt failed: first attempts to others go before theirs. */
  failingWebhooks: MarkList<bigint>;
  timeoutMs: number;
  /** Aborted when the process is to end: nothing new is claimed or sent from then on. */
  stopping: AbortSignal;
  close(): Promise<void>;
}

/**
 * Builds the engine of a process.
 *
 * @param options.resolver how host names are looked up. Defaults to the hosts file and DNS; closed with the engine
 */
export function createDeliveryEngine(options: {
  db: Db;
  secrets: SecretBox;
  delivery: DeliveryConfig;
  dispatch: DispatchConfig;
  log: Logger;
  stopping: AbortSignal;
  resolver?: Resolver;
}): DeliveryEngine {
  const { db, log, stopping, delivery, dispatch } = options;
  const { allowedNetworks, allowedPorts, timeoutMs } = delivery;
  // No lookup outlives the attempt that needs it.
  const { resolver = new NameResolver({ timeoutMs }) } = options;
  const client = createHttpClient(
    createAddressGuard(allowedNetworks, { allowedPorts, resolver }),
    MAX_IN_FLIGHT_EACH,
  );
  const spacing = {
    initialDelayMs: dispatch.retryInitialDelayMs,
    coefficient: dispatch.retryBackoffCoefficient,
  };
  const lease = new WorkerLease(db, dispatch.heartbeatTimeoutMs, log);
  const maintenance = createMaintenance(db, lease, log);
  maintenance.start();
  const slots = new Slots(ALL_SLOTS);
  const firstAttempts = new Slots(FIRST_ATTEMPT_SLOTS, slots);
  const retries = new RetrySlots(RETRY_SLOTS, slots, firstAttempts);
  return {
    db,
    log,
    client,
    stopping,
    sign: createSigner(options.secrets),
    recorder: new Recorder(db, spacing, log, (workerId) => lease.retire(workerId)),
    statements: gatherStatements(db),
    lease,
    limitRetryClaims: pLimit(RETRY_CLAIMS),
    firstAttempts,
    retries,
    retryTurns: new RetryTurns(retries),
    webhooks: new Windows({ start: 1, max: MAX_IN_FLIGHT_EACH }),
    hosts: new Windows({ start: 1, max: MAX_IN_FLIGHT_EACH }),
    slowWebhooks: new MarkList(SLOW_FOR_MS),
    slowHosts: new MarkList(SLOW_FOR_MS),
    failingWebhooks: new MarkList(FAILING_FOR_MS),
    timeoutMs,
    async close() {
      resolver.close();
      await Promise.all([client.destroy(), maintenance.close(), lease.close()]);
    },
  };
}

/** Makes one attempt and records it. The windows are held by the caller's flow. */
export function attempt(
  engine: DeliveryEngine,
  delivery: ClaimedDelivery,
  content: EventContent,
  on: { sent: () => void; outcome: (outcome: Outcome) => void; recorded: Recorded },
): void {
  const outcome = (known: Outcome) => {
    on.outcome(known);
    const { hostFault: _, receiverMs: __, ...result } = known;
    engine.recorder.record({ deliveryId: delivery.id, token: delivery.token, ...result }, on.recorded);
  };
  let request: ReturnType<typeof buildRequest>;
  try {
    request = buildRequest(delivery, content, engine.sign);
  } catch (error) {
    // A secret that does not open, say: a failed attempt, not a stuck delivery.
    engine.log.error({ err: error, deliveryId: delivery.id }, "a request could not be built");
    setImmediate(outcome, notBuilt(error));
    return;
  }
  post(engine.client, request, engine.timeoutMs, { sent: on.sent, outcome });
}

function reasonOf(cause: unknown): string {
  if (cause instanceof NoPayloadError) return cause.message;
  return cause instanceof UnopenableError
    ? "the webhook's signing secret cannot be opened: make a new one with RotateWebhookSecret, or see the service's log"
    : "the request could not be built; see the service's log";
}

function notBuilt(cause: unknown): Outcome {
  return {
    delivered: false,
    started: new Date(),
    durationMs: 0,
    receiverMs: 0,
    status: null,
    error: reasonOf(cause),
    responseStart: null,
    retryAfterMs: null,
    hostFault: false,
  };
}
