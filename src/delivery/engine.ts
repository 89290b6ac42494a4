import type { Logger } from "pino";
import { noteGone } from "../breakers/index.ts";
import type { DeliveryConfig, DispatchConfig } from "../config/index.ts";
import { fanOutStep } from "../events/index.ts";
import { FilterThreads } from "../filters/index.ts";
import {
  createHttpClient,
  type Dispatching,
  HANDSHAKES,
  NameResolver,
  OutboundProxy,
  Pacer,
  type Resolver,
} from "../lib/egress/index.ts";
import { type Db, untilAnswered } from "../lib/pg/index.ts";
import { type Clock, systemClock as clock } from "../lib/process/index.ts";
import {
  countAttempts,
  countFailed,
  type DeliveryInstruments,
  endAttempt,
  recordRequest,
  startAttempt,
  type Tracing,
  traceparentOf,
} from "../metrics/index.ts";
import {
  addWorker,
  claimDue,
  createPendingClaims,
  endFiltered,
  loadStopped,
  openChangeFeed,
  release,
  removeWorker,
  renewWorker,
  settleGroups,
} from "../queue/index.ts";
import { type ClaimedWebhook, ClaimedWebhooks, type SecretBox } from "../webhooks/index.ts";
import { WebhookWatch } from "./claims/webhook-watch.ts";
import { WorkerLease } from "./claims/worker-lease.ts";
import { createEventContents } from "./event-contents.ts";
import { createSlowFilters } from "./filters/slow-filters.ts";
import { Bottlenecks } from "./limits/bottlenecks.ts";
import { FailingShare } from "./limits/failing-share.ts";
import { clampToGranted, readGranted } from "./limits/process-limits.ts";
import { AccessTokens } from "./oauth2/access-tokens.ts";
import { fetchToken } from "./oauth2/token-request.ts";
import { Pumps } from "./pump.ts";
import { Recorder } from "./recorder.ts";
import { createAdditions } from "./request/additions.ts";
import { createGuards, ofOwner } from "./request/guards.ts";
import type { Outcome } from "./request/outcome.ts";
import { post } from "./request/post.ts";
import { createSigner } from "./request/signature.ts";
import { RetryPasses } from "./retry-pass.ts";
import { Sender } from "./sender.ts";

/** The status with which a receiver asks for no more deliveries (410 Gone, Standard Webhooks). */
const GONE = 410;

/** Idle connections kept open in addition to the limit of requests in flight. */
const IDLE_CONNECTIONS = 1_000;

/** The delivery engine of one process: claims, sends and records deliveries. Includes the options with which it was created. */
export type DeliveryEngine = ReturnType<typeof createDeliveryEngine>;

/**
 * Builds the delivery engine of a process.
 *
 * @param options.directDb connections to PostgreSQL itself, which keep their session settings; `db` when no pooler is in between
 * @param options.directUrl PostgreSQL's own address, for the connection that listens for changes
 * @param options.stopping aborted on shutdown: ends waits for the database, and adds no row in `workers`. The `stop` of `run` ends a pump
 *   or retry pass
 * @param options.reservedFiles file descriptors for connections of an API in the same process. Defaults to 0
 * @param options.sharedBy the number of processes that share the container's memory, this one included. Defaults to 1
 * @param options.tracing traces attempts. Defaults to no traces
 * @param options.resolver looks up host names. Defaults to the hosts file and DNS. Closed with the engine
 * @param options.handshakes paces new connections. Defaults to HANDSHAKES
 * @param options.works called with the name of the work that the thread begins, for the log of blocked threads. Defaults to no calls
 * @param options.admit awaited before each claim. Defaults to no wait
 * @param options.expectsMore tells whether something that queues deliveries step by step is likely to queue some soon
 * @param options.onCertificate told the end of a host's certificate at each handshake, and whether it was one of a customer's request. Defaults to nothing
 * @param options.now the clock by which bottlenecks are timed, in milliseconds. Defaults to the system's monotonic clock
 */
export function createDeliveryEngine(options: {
  db: Db;
  directDb: Db;
  directUrl: string;
  secrets: SecretBox;
  delivery: DeliveryConfig;
  dispatch: DispatchConfig;
  log: Logger;
  stopping: AbortSignal;
  reservedFiles?: number;
  sharedBy?: number;
  instruments: DeliveryInstruments;
  tracing?: Pick<Tracing, "tracer" | "followsParent">;
  resolver?: Resolver;
  handshakes?: Pacer;
  now?: Clock["now"];
  works?: (on: string) => void;
  admit?: () => Promise<void> | undefined;
  expectsMore: (db: Db) => Promise<boolean>;
  onCertificate?: (host: string, notAfter: Date, ofCustomers: boolean) => void;
}) {
  const { db, directUrl, log, stopping, delivery, dispatch, instruments, tracing } = options;
  const { timeoutMs } = delivery;
  // A lookup never runs longer than the attempt that needs it.
  const { resolver = new NameResolver({ timeoutMs }), handshakes = new Pacer(HANDSHAKES, clock) } = options;
  const bottlenecks = new Bottlenecks({ now: options.now ?? clock.now }, log, instruments.bottleneck);
  const limits = clampToGranted(delivery, readGranted(options.sharedBy ?? 1), options.reservedFiles ?? 0);
  for (const warning of limits.warnings) log.warn(warning);
  const resolvesNames = delivery.proxyDns === "remote";
  const outbound =
    delivery.proxy && new OutboundProxy(delivery.proxy, resolver, { timeoutMs, resolvesNames, log });
  const guards = createGuards(delivery, resolver);
  const client = createHttpClient(
    guards.operator,
    limits.maxInFlight + IDLE_CONNECTIONS,
    outbound,
    handshakes,
    options.onCertificate,
  );
  const clients = { operator: client, customers: client.guardedBy(guards.customers) };
  const tokensBy = (via: Dispatching) =>
    new AccessTokens((oauth2, worked) => fetchToken(via, oauth2, { worked }));
  // Not shared: a token endpoint that only the operator's webhooks may reach would give customers its tokens.
  const tokens = { operator: tokensBy(clients.operator), customers: tokensBy(clients.customers) };
  const filters = new FilterThreads(delivery.filterTimeoutMs, log);
  const lease = new WorkerLease({
    clock,
    log,
    leaseMs: dispatch.heartbeatTimeoutMs,
    stopping,
    add: (worker) => addWorker(db, worker),
    renew: (id, leaseMs) => renewWorker(db, id, leaseMs, bottlenecks.current),
    remove: (id) => removeWorker(db, id),
  });
  function isGone({ id, target }: ClaimedWebhook): void {
    untilAnswered(() => noteGone(db, id, target.url), { signal: stopping }).catch((err) => {
      if (!stopping.aborted) log.error({ err, webhookId: String(id) }, "disabling a webhook failed");
    });
  }
  const watch = new WebhookWatch({
    clock,
    log,
    openFeed: (queued) => openChangeFeed(directUrl, queued, (window, holdMs) => sender.hold(window, holdMs)),
    loadStopped: (held) => loadStopped(db, held),
    queued: () => pumps.wake(),
    held: () => sender.held(),
    stopped: (webhookIds) => sender.stop(webhookIds),
  });
  const sender = new Sender(
    {
      clock,
      log,
      post(request, outcome, gate, { id, token, webhook }) {
        const { origin, traceparent } = request;
        const number = token.attempts + 1;
        const span = tracing && startAttempt(tracing, { deliveryId: id, number, origin, traceparent });
        const passedOn = span ? traceparentOf(span) : traceparent;
        if (delivery.sendTraceparent && passedOn) request.headers.push("traceparent", passedOn);
        const measured = (known: Outcome) => {
          recordRequest(instruments, known);
          if (span) endAttempt(span, known);
          if (outbound && known.status !== null) outbound.answered(performance.now() - known.durationMs);
          if (known.status === GONE && webhook.disableOnGone) isGone(webhook);
          outcome(known);
        };
        post(ofOwner(clients, webhook.customer), request, timeoutMs, measured, gate);
      },
      sign: createSigner(options.secrets),
      additions: createAdditions(options.secrets, tokens),
      recorder: new Recorder({
        db,
        spacing: dispatch,
        log,
        onRecorded(results, states) {
          options.works?.("recording results");
          countAttempts(instruments, results, states);
        },
      }),
      filters: { runner: filters, ...createSlowFilters({ db, log, instruments, stopping }) },
      release: (workerId, some) => release(db, workerId, some),
      endFiltered: (workerId, some) => endFiltered(db, workerId, some),
      lease,
      watch,
      contents: createEventContents(db, limits.memoryBytes),
      share: new FailingShare(delivery.failingShare),
      bottlenecks,
      handshakes,
      proxy: outbound,
    },
    { max: limits.maxInFlight, perHost: delivery.maxPerHost, perWebhook: delivery.maxPerWebhook },
  );
  instruments.inFlight.addCallback((result) => result.observe(sender.inFlight));
  /** Claims for pumps and retry passes. The time of a claim counts as a wait for the database in `bottlenecks`. */
  const claims: Pick<WorkerLease, "claim"> = {
    async claim(work, stop) {
      await untilAnswered(async () => options.admit?.(), { signal: stop });
      const claim = await bottlenecks.waitFor(lease.claim(work, stop));
      options.works?.("claimed deliveries");
      // A row claimed more than 10 times (MAX_CLAIMS) without a result is not in `deliveries`: it has failed as `interrupted`.
      countFailed(instruments.failed, claim.touched - claim.deliveries.length, "interrupted");
      return claim;
    },
  };
  const webhooks = new ClaimedWebhooks();
  const pumps = new Pumps({
    queue: {
      claim: createPendingClaims(db, webhooks),
      fanOut: () => fanOutStep(db),
      async expectsMore(signal) {
        // If a filter does not match a breaker's probe, the breaker chooses another probe after the claim of the first has ended.
        await sender.ended();
        return untilAnswered(() => options.expectsMore(db), { signal });
      },
    },
    log,
    lease: claims,
    sender,
    clock,
  });
  return {
    ...options,
    pumps,
    retries: new RetryPasses({
      clock,
      claim: (workerId, options) => claimDue(db, workerId, options, webhooks),
      lease: claims,
      sender,
      settle: (groups) => settleGroups(db, groups),
    }),
    lease,
    /** A number that a user's change of any webhook raises. */
    revision: () => watch.revision,
    async close() {
      resolver.close();
      sender.close();
      await sender.ended();
      await Promise.all([client.destroy(), filters.close(), watch.close(), lease.close()]);
    },
  };
}
