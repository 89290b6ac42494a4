import type { BottleneckCause } from "../contract/stats/bottlenecks.ts";
import type { OutboundProxy, Pacer } from "../lib/egress/index.ts";
import type { Clock } from "../lib/process/index.ts";
import type { ClaimedDelivery, HeldWebhook, WebhookWish } from "../queue/index.ts";
import { type AttemptParts, prepare } from "./attempt.ts";
import type { ClaimOwner } from "./claim-owner.ts";
import type { WebhookWatch } from "./claims/webhook-watch.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import type { EventContents } from "./event-contents.ts";
import { Filters, type FiltersParts } from "./filters/filters.ts";
import type { Bottlenecks } from "./limits/bottlenecks.ts";
import { type FailingShare, SAMPLE_MS } from "./limits/failing-share.ts";
import { Holds } from "./limits/holds.ts";
import { Scheduler } from "./limits/scheduler.ts";
import { SkippedWebhooks } from "./limits/skipped-webhooks.ts";
import { StartLimits } from "./limits/start-limits.ts";
import type { Kind, Task, WindowKey } from "./limits/task.ts";
import { NO_VERDICT, verdictOf } from "./limits/verdict.ts";
import type { Recorder } from "./recorder.ts";
import { type Outcome, type Wish, wasSent } from "./request/outcome.ts";
import type { Gate } from "./request/post.ts";
import type { SignedRequest } from "./request/request.ts";
import { type OwnedClaim, UnsentClaims, type UnsentClaimsParts } from "./unsent-claims.ts";

/** Dependencies of a sender. */
export interface SenderParts extends AttemptParts, UnsentClaimsParts {
  clock: Clock;
  recorder: Pick<Recorder, "unrecorded" | "record">;
  filters: Omit<FiltersParts, "log">;
  lease: Pick<WorkerLease, "isValid" | "hasLost" | "retire" | "settle" | "verify">;
  watch: Pick<WebhookWatch, "isFresh" | "revision" | "stoppedSince">;
  contents: Pick<EventContents, "room" | "hold" | "of" | "release">;
  /** Limits the thread's time for receivers that fail. */
  share: Pick<FailingShare, "hasRoom" | "request" | "connection" | "sample">;
  bottlenecks: Pick<Bottlenecks, "waitFor" | "sample">;
  /** Paces the connections that requests open. */
  handshakes: Pick<Pacer, "backlogMs">;
  /** The state of the outbound proxy. Undefined without one. */
  proxy?: Pick<OutboundProxy, "mayStart"> | undefined;
}

/** What a claim may take. */
export type ClaimRoom = NonNullable<ReturnType<Sender["claimRoom"]>>;

/** A claimed delivery that waits for its filter, is queued or in flight. */
interface Sending extends Task, OwnedClaim {
  /** Whether the webhook was paused, deleted or changed since the delivery left the queue. */
  isStopped: boolean;
}

/** The number of deliveries that filters did not match and that are still to be ended, above which nothing is claimed. */
const MAX_UNMATCHED = 1_024;
/**
 * Sends the claimed deliveries of a process, first attempts and retries: enforces the limits, records each result,
 * and releases deliveries that may not be sent.
 */
export class Sender {
  readonly #parts: SenderParts;
  readonly #scheduler: Scheduler<Sending>;
  readonly #skipped: SkippedWebhooks<Sending>;
  readonly #holds = new Holds();
  /** Stops the timer that takes samples and starts queued deliveries every `SAMPLE_MS`. */
  readonly close: () => void;
  /** Deliveries in flight. A later stop matters even if the request was sent: it may be sent once more over a new connection. */
  readonly #started = new Set<Sending>();
  readonly #filters: Filters<Sending>;
  readonly #unsent: UnsentClaims;
  readonly #limits: StartLimits;
  /** The cause for which no request could start in the last turn with queued deliveries. */
  #heldBy: BottleneckCause | undefined;
  #isPlanned = false;

  /** @param limits the maximum of requests in flight: in total, per host and per webhook */
  constructor(parts: SenderParts, limits: { max: number; perHost: number; perWebhook: number }) {
    this.#parts = parts;
    this.#unsent = new UnsentClaims(parts);
    this.#limits = new StartLimits(limits.max);
    this.#scheduler = new Scheduler(limits, () => parts.share.hasRoom);
    this.#skipped = new SkippedWebhooks(this.#scheduler);
    this.#filters = new Filters(
      { ...parts.filters, log: parts.log },
      (sending, isSent) => this.#filtered(sending, isSent),
      (sendings) => this.#unsent.release(sendings),
    );
    this.close = parts.clock.every(SAMPLE_MS, () => {
      const utilization = parts.share.sample();
      const { first, retry } = this.#scheduler.lanes;
      const isWaiting = first.hasSendable(0) || retry.hasSendable(0);
      parts.bottlenecks.sample({ isWaiting, heldBy: this.#heldBy, utilization });
      this.#plan();
    });
  }

  /** The number of deliveries that are being sent, or wait for their access token or connection. */
  get inFlight(): number {
    return this.#scheduler.inFlight;
  }

  /**
   * What the next claim of a kind may take. `limit`: the number of deliveries, limited by the room for payloads. `excluded`: the webhooks
   * to skip, because enough of their deliveries are claimed or they have no room. `asOf`: for `take`, the revision of the webhooks and the
   * time before the claim.
   *
   * @param most the maximum number of deliveries
   * @param maxQueued the number of queued sendable deliveries above which nothing is claimed
   * @returns undefined if nothing may be claimed now
   */
  claimRoom(kind: Kind, most: number, maxQueued: number) {
    const { clock, contents, watch } = this.#parts;
    const limit = Math.min(most, contents.room);
    const { lanes, free } = this.#scheduler;
    if (limit === 0 || lanes[kind].hasSendable(maxQueued, free)) return undefined;
    // Only first attempts wait for filters.
    const waiting = kind === "first" ? this.#filters.excluded() : [];
    if (!waiting || this.#unsent.unmatched > MAX_UNMATCHED) return undefined;
    const asOf = { revision: watch.revision, at: clock.now() };
    return { limit, excluded: [...this.#skipped.of(kind), ...waiting], asOf };
  }

  /**
   * Takes over claimed deliveries. Sends them as soon as filters and limits allow; ends first attempts that the webhook's filter
   * does not match; releases those whose payload does not fit, or whose webhook was paused, deleted, changed or held since the claim.
   *
   * @param asOf of the room of the claim
   */
  async take<T extends ClaimedDelivery>(
    deliveries: readonly T[],
    kind: Kind,
    ownerOf: (delivery: T) => ClaimOwner,
    asOf: ClaimRoom["asOf"],
  ): Promise<void> {
    if (deliveries.length === 0) return;
    const { bottlenecks, contents, watch } = this.#parts;
    const sendings = deliveries.map((delivery) => sendingOf(delivery, kind, ownerOf(delivery)));
    for (const { owner } of sendings) owner.add(1);
    /** Deliveries whose payloads are not loaded. */
    let unheld: ReadonlySet<ClaimedDelivery> = new Set(deliveries);
    let stopped: ReadonlySet<bigint>;
    try {
      unheld = new Set(await bottlenecks.waitFor(contents.hold(deliveries)));
      stopped = await watch.stoppedSince(asOf.revision, () => heldWebhooks(deliveries));
    } catch (error) {
      for (const delivery of deliveries) if (!unheld.has(delivery)) contents.release(delivery);
      await this.#unsent.releaseUnloaded(sendings);
      throw error;
    }
    const unsendable: Sending[] = [];
    for (const sending of sendings) {
      const { delivery, webhookId } = sending;
      if (unheld.has(delivery)) continue;
      const content = contents.of(delivery);
      if (stopped.has(webhookId) || this.#isHeld(sending, asOf.at)) unsendable.push(sending);
      // Retries are not filtered: their first attempt was already made.
      else if (kind === "first" && this.#filters.appliesTo(delivery, content))
        this.#filters.add(sending, content);
      else unsendable.push(...this.#skipped.queue(sending));
    }
    this.#unsent.release(unsendable);
    this.#plan();
    await this.#unsent.releaseUnloaded(sendings.filter(({ delivery }) => unheld.has(delivery)));
  }

  #filtered(sending: Sending, isSent: boolean): void {
    if (!isSent) return void this.#unsent.endUnmatched(sending);
    this.#unsent.release(this.#skipped.queue(sending));
    this.#plan();
  }

  /** Resolves when all releases, and endings by filters, that are in progress have ended. Starts none. */
  ended(): Promise<void> {
    return this.#unsent.ended();
  }

  /** Releases the deliveries of an owner that are queued or wait for a filter. */
  withdraw(owner: ClaimOwner): void {
    // Saves the search, which goes through the whole queue.
    if (owner.open > 0) this.#release((sending) => sending.owner === owner);
  }

  /** Releases deliveries that are queued or wait for a filter. */
  #release(wanted: (sending: Sending) => boolean): void {
    this.#unsent.release([...this.#filters.remove(wanted), ...this.#scheduler.remove(wanted)]);
  }

  /** Transfers the deliveries of an owner that are queued or wait for a filter. */
  transfer(from: ClaimOwner, to: ClaimOwner): void {
    const move = (sending: Sending) => {
      from.add(-1);
      to.add(1);
      sending.owner = to;
    };
    for (const sending of this.#filters.tasks()) if (sending.owner === from) move(sending);
    for (const sending of this.#scheduler.remove(({ owner }) => owner === from)) {
      move(sending);
      this.#unsent.release(this.#scheduler.push(sending));
    }
  }

  /**
   * The webhooks of queued deliveries and of deliveries in flight, and skipped webhooks. Omits deliveries in flight that are already
   * stopped: they have the webhook's old revision, so that each further change of any webhook would stop the webhook's newer deliveries.
   */
  held(): HeldWebhook[] {
    const started = [...this.#started].filter(({ isStopped }) => !isStopped);
    const { first, retry } = this.#scheduler.lanes;
    const queued = [...this.#filters.tasks(), ...first.tasks(), ...retry.tasks()];
    const held = [...queued, ...started, ...this.#skipped.crowded()];
    return heldWebhooks(held.map(({ delivery }) => delivery));
  }

  /** Releases the queued deliveries of paused, deleted or changed webhooks, and marks those in flight as stopped. */
  stop(webhookIds: ReadonlySet<bigint>): void {
    this.#stop(({ webhookId }) => webhookIds.has(webhookId));
    this.#skipped.forget(webhookIds);
  }

  #stop(wanted: (sending: Sending) => boolean): void {
    this.#release(wanted);
    for (const sending of this.#started) if (wanted(sending)) sending.isStopped = true;
  }

  /**
   * Releases the claimed deliveries of a webhook or an endpoint whose receiver wants no requests for some time, except test events.
   * Afterwards, it gets one request at a time at first.
   *
   * @param isStored whether the database has the hold. Defaults to true
   */
  hold(window: WindowKey, holdMs: number, isStored = true): void {
    const { clock } = this.#parts;
    this.#holds.add(window, clock.now(), holdMs, isStored);
    this.#scheduler.webhooks.limit(window, 1);
    this.#stop((sending) => sending.window === window && !this.#isTest(sending));
  }

  #isHeld(sending: Sending, claimedAt: number): boolean {
    const isHeld = this.#holds.isHeld(sending.window, this.#parts.clock.now(), claimedAt);
    return isHeld && !this.#isTest(sending);
  }

  #isTest({ delivery }: Sending): boolean {
    return this.#parts.contents.of(delivery).test === true;
  }

  /**
   * Starts deliveries at the end of this turn of the event loop, when all ended requests have freed their slots and
   * connections.
   */
  #plan(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    this.#parts.clock.soon(() => {
      this.#isPlanned = false;
      this.#startSome();
    });
  }

  #startSome(): void {
    const { clock, handshakes, lease, proxy, recorder, watch } = this.#parts;
    const { first, retry } = this.#scheduler.lanes;
    if (first.waiting + retry.waiting === 0) return;
    this.#heldBy = lease.isValid() && watch.isFresh() ? undefined : "database";
    if (this.#heldBy) return;
    for (let left = this.#limits.startsPerTurn(clock.worked()); left > 0; left -= 1) {
      const { inFlight } = this.#scheduler;
      this.#heldBy = this.#limits.heldBy(inFlight, recorder.unrecorded, handshakes.backlogMs);
      // While the proxy is unavailable, one request tries it per interval.
      if (this.#heldBy || proxy?.mayStart() === false) return;
      const sending = this.#scheduler.next();
      if (!sending) {
        // Nothing queued may start. Counts as a bottleneck only if receivers have room: then too few requests are free for their hosts.
        this.#heldBy = "limit";
        return;
      }
      this.#deliver(sending);
    }
    this.#plan();
  }

  /**
   * The act of a delivery: prepare, admit, post, record. The steps are callbacks, because a promise costs a tenth of a delivery's
   * processing time.
   */
  #deliver(sending: Sending): void {
    const { post, share } = this.#parts;
    const { delivery } = sending;
    const isFailing = this.#scheduler.isFailing(sending);
    share.request(isFailing);
    this.#started.add(sending);
    const withdrawn = () => this.#withdraw(sending);
    const gate: Gate = {
      opens: () => share.connection(isFailing),
      maySend: () => this.#admits(sending),
      withdrawn,
    };
    const ended = (request: SignedRequest, outcome: Outcome) => {
      if (outcome.status === 401) request.onUnauthorized?.();
      this.#record(sending, outcome, request.signature);
    };
    prepare(this.#parts, delivery, {
      withdrawn,
      failed: (outcome) => this.#record(sending, outcome, null),
      ready: (request) => post(request, (outcome) => ended(request, outcome), gate, delivery),
    });
  }

  /** Whether a started delivery may still be sent, now that its connection is ready: webhook and claim are unchanged. */
  #admits(sending: Sending): boolean {
    const { lease, watch } = this.#parts;
    if (sending.isStopped || !lease.isValid() || !watch.isFresh()) return false;
    return !lease.hasLost(sending.delivery.token.workerId);
  }

  /** Ends a delivery that was not sent. Its claim is released. */
  #withdraw(sending: Sending): void {
    this.#started.delete(sending);
    this.#scheduler.end(sending, NO_VERDICT);
    this.#plan();
    this.#unsent.release([sending]);
  }

  /** Applies a receiver's wish in this process. Returns it for the database; undefined if it concerns only this process. */
  #heed({ delivery, webhookId, window }: Sending, { remaining, ...wish }: Wish): WebhookWish | undefined {
    const { webhooks } = this.#scheduler;
    if (remaining !== null) webhooks.limit(window, remaining);
    if (wish.holdMs > 0) this.hold(window, wish.holdMs, false);
    if (!wish.isRefusal && wish.holdMs === 0) return undefined;
    const acceptedRate = wish.isRefusal ? webhooks.refusedRate(window, this.#parts.clock.now()) : null;
    return { ...wish, webhookId, targetUrl: delivery.webhook.target.url, acceptedRate };
  }

  /** Adjusts the windows, then records the attempt. @param signed the signature that the request carried; null without one */
  #record(sending: Sending, outcome: Outcome, signed: string | null): void {
    const { delivery, window } = sending;
    const { clock, contents, lease, recorder } = this.#parts;
    this.#started.delete(sending);
    this.#limits.ended();
    const verdict = verdictOf(outcome);
    const wish = outcome.wish && this.#heed(sending, outcome.wish);
    this.#unsent.release(this.#skipped.removeHanging(sending, verdict));
    this.#scheduler.end(sending, verdict, clock.now());
    this.#plan();
    const { failure: _, ...result } = outcome;
    const signature = wasSent(outcome) && !outcome.delivered ? signed : null;
    const { id: deliveryId, token, webhook } = delivery;
    const { runId } = sending.owner;
    const recorded = { deliveryId, webhookId: webhook.id, token, runId, signature, ...result, wish };
    recorder.record(recorded, (state) => {
      if (wish) this.#holds.stored(window, clock.now());
      contents.release(delivery);
      if (state === undefined) lease.retire(token.workerId);
      lease.settle(token.workerId);
      if (state === undefined) lease.verify();
      sending.owner.recorded(delivery, outcome, state);
      this.#plan();
    });
  }
}

function sendingOf(delivery: ClaimedDelivery, kind: Kind, owner: ClaimOwner): Sending {
  const { id: webhookId, endpointId, target } = delivery.webhook;
  const window = endpointId ?? webhookId;
  return { kind, webhookId, window, host: target.host, delivery, owner, isStopped: false };
}

/** The webhooks of deliveries, once per version: a webhook that changed between two claims has two entries. */
function heldWebhooks(deliveries: readonly ClaimedDelivery[]): HeldWebhook[] {
  const byWebhook = Map.groupBy(deliveries, ({ webhook }) => webhook);
  return [...byWebhook].map(([{ id, revision, customer }, [first, second]]) => ({
    id,
    revision,
    customer,
    ...(first && !second ? { onlyId: first.id } : {}),
  }));
}
