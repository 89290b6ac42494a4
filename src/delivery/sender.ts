import type { Logger } from "pino";
import { untilAnswered } from "../db/faults.ts";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import type { RecordedState } from "../db/queue/results.ts";
import { UnopenableError } from "../db/webhooks/secret-box.ts";
import type { Clock } from "../process/clock.ts";
import type { EventContents } from "./event-contents.ts";
import { ADAPT_MS, type InFlightLimit } from "./limits/in-flight-limit.ts";
import { type Kind, Scheduler, type Task, type Verdict } from "./limits/scheduler.ts";
import type { Recorder } from "./recorder.ts";
import type { Outcome } from "./request/outcome.ts";
import type { Gate } from "./request/post.ts";
import { buildRequest, NoPayloadError } from "./request/request.ts";
import type { Signer } from "./request/signature.ts";
import { targetOf } from "./request/target.ts";
import type { WebhookWatch } from "./webhook-watch.ts";
import type { WorkerLease } from "./worker-lease.ts";

/** Whose deliveries the sender sends: it is told of the end of each, once. */
export interface Owner {
  /** The attempt was made. @param state undefined when its result could not be recorded, since the claim was lost */
  recorded(delivery: ClaimedDelivery, outcome: Outcome, state: RecordedState | undefined): void;
  /** It was given back, untried. */
  returned(): void;
}

/** What a sender works with. */
export interface SenderParts {
  clock: Clock;
  log: Logger;
  /** Makes one POST, as `post` does. */
  post: (request: ReturnType<typeof buildRequest>, outcome: (outcome: Outcome) => void, gate: Gate) => void;
  sign: Signer;
  recorder: Pick<Recorder, "unrecorded" | "record">;
  /** Gives back in the database what a worker has claimed. */
  release: (workerId: number, deliveries: readonly ClaimedDelivery[]) => Promise<void>;
  lease: Pick<WorkerLease, "isValid" | "hasLost" | "settle" | "retire" | "verify">;
  watch: Pick<WebhookWatch, "isFresh" | "revision" | "stoppedSince">;
  contents: Pick<EventContents, "room" | "hold" | "of" | "release">;
  limit: InFlightLimit;
}

/** A claimed delivery that waits or is in flight. */
interface Sending extends Task {
  readonly delivery: ClaimedDelivery;
  owner: Owner;
  /** Its webhook was paused or deleted while it waited for its connection. */
  isStopped: boolean;
}

/** Waiting for one webhook, so much is enough: a claim brings more before that is sent. */
const ENOUGH = 1_024;
/** Where a webhook or its host has no room, as many as its window has are enough, and so many at the least. */
const LEAST_ENOUGH = 4;
/** How long an answer to which webhooks are supplied is used, in milliseconds. */
const SUPPLIED_MS = 5;
/** Results that are not recorded yet, at most; then nothing starts: a crash would repeat all of them. */
const MAX_UNRECORDED = 128;
/** Waiting for one host without room, at most, beside as many as its window has. */
const MAX_BLOCKED = 8;

/**
 * Sends what a process has claimed, first attempts and retries alike: it keeps within the limits, records each result, and
 * gives back what may not be sent.
 */
export class Sender {
  readonly #parts: SenderParts;
  readonly #scheduler: Scheduler<Sending>;
  readonly #endAdapting: () => void;
  /** Webhooks of hosts without room, of which enough wait: they are left out of claims until there is room. */
  readonly #crowded = new Map<bigint, string>();
  /** In flight and waiting for a connection. */
  readonly #connecting = new Set<Sending>();
  readonly #returning = new Set<Promise<void>>();
  /** As found last: hundreds of retry passes ask at the same time. */
  #suppliedRetries: { at: number; webhookIds: readonly bigint[] } | undefined;
  #limitReached = false;
  #isPlanned = false;

  /** @param limits the most in flight to one host and to one webhook */
  constructor(parts: SenderParts, limits: { perHost: number; perWebhook: number }) {
    this.#parts = parts;
    this.#scheduler = new Scheduler({ budget: parts.limit.value, ...limits });
    this.#endAdapting = parts.clock.every(ADAPT_MS, () => this.#adapt());
  }

  /**
   * Whether more than so many deliveries of a kind wait here for nothing but the budget. What waits for a receiver is not
   * counted: it must not keep those of others from being claimed.
   */
  hasWaiting(kind: Kind, deliveries: number): boolean {
    if (this.#scheduler.waiting(kind) <= deliveries) return false;
    let sendable = 0;
    for (const { webhookId, host, waiting } of this.#scheduler.queues(kind)) {
      if (this.#scheduler.hasRoom(webhookId, host)) sendable += waiting;
      if (sendable > deliveries) return true;
    }
    return false;
  }

  /** Deliveries that are being sent, or wait for their connection. */
  get inFlight(): number {
    return this.#scheduler.inFlight;
  }

  /** Deliveries for whose payloads there is room. */
  get room(): number {
    return this.#parts.contents.room;
  }

  /** The revision of the webhooks as known now; to be read before a claim. */
  get revision(): bigint {
    return this.#parts.watch.revision;
  }

  /** The webhooks of which no more are to be claimed at the moment: enough of them wait, or they have no room. */
  supplied(kind: Kind): readonly bigint[] {
    // Only one pump claims at a time, and what it has just claimed has to count.
    if (kind === "first") return this.#findSupplied(kind);
    const known = this.#suppliedRetries;
    const now = this.#parts.clock.now();
    if (known && now - known.at < SUPPLIED_MS) return known.webhookIds;
    const webhookIds = this.#findSupplied(kind);
    this.#suppliedRetries = { at: now, webhookIds };
    return webhookIds;
  }

  #findSupplied(kind: Kind): bigint[] {
    const supplied: bigint[] = [];
    for (const { webhookId, host, waiting } of this.#scheduler.queues(kind)) {
      if (waiting < LEAST_ENOUGH) continue;
      if (waiting < ENOUGH) {
        if (this.#scheduler.hasRoom(webhookId, host)) continue;
        if (waiting < this.#scheduler.webhooks.of(webhookId).allowed) continue;
      }
      supplied.push(webhookId);
    }
    for (const [webhookId, host] of this.#crowded) {
      if (this.#scheduler.hosts.hasRoom(host)) this.#crowded.delete(webhookId);
      else supplied.push(webhookId);
    }
    return supplied;
  }

  /**
   * Takes claimed deliveries over: sends them as soon as the limits allow, or gives them back where there is no room for
   * their payload or their webhook was paused or deleted meanwhile.
   *
   * @param revision read before the claim
   */
  async take(
    deliveries: readonly ClaimedDelivery[],
    kind: Kind,
    owner: Owner,
    revision: bigint,
  ): Promise<void> {
    if (deliveries.length === 0) return;
    let unheld: readonly ClaimedDelivery[] = deliveries;
    let stopped: ReadonlySet<bigint>;
    try {
      unheld = await this.#parts.contents.hold(deliveries);
      stopped = await this.#parts.watch.stoppedSince(revision, () => [
        ...new Set(deliveries.map(idOfWebhook)),
      ]);
    } catch (error) {
      const without = new Set(unheld);
      for (const delivery of deliveries) if (!without.has(delivery)) this.#parts.contents.release(delivery);
      await this.#giveBack(deliveries.map((delivery) => ({ delivery, owner })));
      throw error;
    }
    const without = new Set(unheld);
    const unsendable: Sending[] = [];
    for (const delivery of deliveries) {
      if (without.has(delivery)) continue;
      const { host } = targetOf(delivery.webhook);
      const sending: Sending = {
        kind,
        webhookId: delivery.webhook.id,
        host,
        delivery,
        owner,
        isStopped: false,
      };
      if (stopped.has(sending.webhookId) || this.#isCrowded(sending)) unsendable.push(sending);
      else this.#scheduler.push(sending);
    }
    this.#return(unsendable);
    this.#plan();
    await this.#giveBack(unheld.map((delivery) => ({ delivery, owner })));
  }

  /** Gives back what waits of an owner. */
  withdraw(owner: Owner): void {
    this.#return(this.#scheduler.remove((sending) => sending.owner === owner));
  }

  /** Another owner is told of the end of what waits for the first. */
  transfer(from: Owner, to: Owner): number {
    const waiting = this.#scheduler.remove((sending) => sending.owner === from);
    for (const sending of waiting) {
      sending.owner = to;
      this.#scheduler.push(sending);
    }
    return waiting.length;
  }

  /** The webhooks that deliveries wait for, here or for their connection. */
  held(): bigint[] {
    const waiting = [
      ...this.#scheduler.queues("first"),
      ...this.#scheduler.queues("retry"),
      ...this.#connecting,
    ];
    return [...new Set(waiting.map(({ webhookId }) => webhookId))];
  }

  /** Gives back what waits for webhooks that were paused or deleted. */
  stop(webhookIds: ReadonlySet<bigint>): void {
    this.#return(this.#scheduler.remove(({ webhookId }) => webhookIds.has(webhookId)));
    for (const sending of this.#connecting) if (webhookIds.has(sending.webhookId)) sending.isStopped = true;
  }

  /** Stops adapting, and resolves when everything is given back that was to be. */
  async close(): Promise<void> {
    this.#endAdapting();
    while (this.#returning.size > 0) await Promise.all(this.#returning);
  }

  #adapt(): void {
    const { limit } = this.#parts;
    limit.adapt(this.#limitReached);
    this.#limitReached = false;
    this.#scheduler.budget = limit.value;
    this.#startWhatFits();
  }

  /** What has ended in this turn of the event loop makes room together, and its connection is free by then. */
  #plan(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    this.#parts.clock.soon(() => {
      this.#isPlanned = false;
      this.#startWhatFits();
    });
  }

  #startWhatFits(): void {
    const { lease, recorder } = this.#parts;
    const waits = () => this.#scheduler.waiting("first") + this.#scheduler.waiting("retry") > 0;
    while (waits() && lease.isValid() && this.#parts.watch.isFresh()) {
      if (recorder.unrecorded >= MAX_UNRECORDED) return;
      const sending = this.#scheduler.next();
      if (!sending) {
        if (this.#scheduler.inFlight >= this.#scheduler.budget) this.#limitReached = true;
        return;
      }
      if (lease.hasLost(sending.delivery.token.workerId)) {
        this.#scheduler.end(sending, NO_VERDICT);
        this.#parts.contents.release(sending.delivery);
        sending.owner.returned();
      } else {
        this.#send(sending);
      }
    }
  }

  #send(sending: Sending): void {
    const { clock, post, contents, sign, log } = this.#parts;
    const { delivery } = sending;
    let request: ReturnType<typeof buildRequest>;
    try {
      request = buildRequest(delivery, contents.of(delivery), sign);
    } catch (error) {
      // A secret that does not open, say: a failed attempt, not a stuck delivery.
      log.error({ err: error, deliveryId: delivery.id }, "a request could not be built");
      clock.soon(() => this.#ended(sending, notBuilt(error)));
      return;
    }
    this.#connecting.add(sending);
    const outcome = (known: Outcome) => {
      this.#connecting.delete(sending);
      this.#ended(sending, known);
    };
    post(request, outcome, {
      maySend: () => this.#maySend(sending),
      withdrawn: () => this.#withdrawn(sending),
    });
  }

  /** Asked when there is a connection: much may have happened while it was made. */
  #maySend(sending: Sending): boolean {
    const { lease, watch } = this.#parts;
    this.#connecting.delete(sending);
    if (sending.isStopped || !lease.isValid() || !watch.isFresh()) return false;
    return !lease.hasLost(sending.delivery.token.workerId);
  }

  #withdrawn(sending: Sending): void {
    this.#scheduler.end(sending, NO_VERDICT);
    this.#plan();
    this.#return([sending]);
  }

  #ended(sending: Sending, outcome: Outcome): void {
    const { delivery } = sending;
    this.#scheduler.end(sending, verdictOf(outcome));
    this.#plan();
    const { failure: _, ...result } = outcome;
    this.#parts.recorder.record({ deliveryId: delivery.id, token: delivery.token, ...result }, (state) => {
      this.#parts.contents.release(delivery);
      this.#parts.lease.settle(delivery.token.workerId);
      if (state === undefined) this.#parts.lease.verify();
      sending.owner.recorded(delivery, outcome, state);
      this.#plan();
    });
  }

  /** Whether so many wait for a host without room that this one would only take memory. */
  #isCrowded({ webhookId, host }: Sending): boolean {
    if (this.#scheduler.hosts.hasRoom(host)) return false;
    const { allowed } = this.#scheduler.hosts.of(host);
    if (this.#scheduler.waitingForHost(host) < MAX_BLOCKED + allowed) return false;
    this.#crowded.set(webhookId, host);
    return true;
  }

  #return(sendings: readonly Sending[]): void {
    for (const { delivery } of sendings) this.#parts.contents.release(delivery);
    void this.#giveBack(sendings);
  }

  /** Gives claimed deliveries back whose payloads are not held any more, and tells their owners. Never rejects. */
  async #giveBack(some: readonly { delivery: ClaimedDelivery; owner: Owner }[]): Promise<void> {
    if (some.length === 0) return;
    const work = this.#release(some.map(({ delivery }) => delivery));
    this.#returning.add(work);
    await work;
    this.#returning.delete(work);
    for (const { owner } of some) owner.returned();
  }

  async #release(deliveries: readonly ClaimedDelivery[]): Promise<void> {
    const { release, lease, log } = this.#parts;
    for (const [workerId, some] of Map.groupBy(deliveries, ({ token }) => token.workerId)) {
      try {
        await untilAnswered(() => release(workerId, some));
      } catch (err) {
        // They are free once nothing else is claimed under this id.
        log.error({ err }, "claimed deliveries could not be given back");
        lease.retire(workerId);
      }
      lease.settle(workerId, some.length);
    }
  }
}

const idOfWebhook = ({ webhook }: ClaimedDelivery) => webhook.id;

const NO_VERDICT: Verdict = { webhook: "none", host: "none" };

/** Who is to blame for an outcome: any response shows that the host works. */
function verdictOf({ delivered, status, failure }: Outcome): Verdict {
  if (status !== null) return { webhook: delivered ? "success" : "failure", host: "success" };
  switch (failure) {
    case "webhook":
      return { webhook: "failure", host: "none" };
    case "webhook timeout":
      return { webhook: "timeout", host: "none" };
    case "host":
      return { webhook: "none", host: "failure" };
    case "host timeout":
      return { webhook: "none", host: "timeout" };
    default:
      return NO_VERDICT;
  }
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
    status: null,
    error: reasonOf(cause),
    responseStart: null,
    retryAfterMs: null,
    failure: "ours",
  };
}
