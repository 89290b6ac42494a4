import type { Logger } from "pino";
import { isTransient, untilAnswered } from "../../lib/pg/index.ts";
import { type Clock, currentMoment, LONG_AGO } from "../../lib/process/index.ts";
import type { Changed, ChangeFeed, HeldWebhook } from "../../queue/index.ts";

/** The interval between reads of the revision, in milliseconds. */
const READ_INTERVAL_MS = 250;
/** The age of the last read from which no request starts, in milliseconds. */
const MAX_AGE_MS = 1_000;
/** The delay between connection attempts, in milliseconds. */
const RECONNECT_DELAY_MS = 500;
/** The maximum number of customers whose latest change is remembered. With more, all webhooks count as changed once. */
const MAX_KNOWN = 10_000;

/** Dependencies of a watch. */
export interface WatchParts {
  clock: Clock;
  log: Logger;
  /** Opens a connection to PostgreSQL itself, because LISTEN does not work through a pooler. */
  openFeed: (queued: () => void) => Promise<ChangeFeed>;
  /** Returns which of the webhooks are paused, deleted or changed. */
  loadStopped: (held: readonly HeldWebhook[]) => Promise<bigint[]>;
  /** Called when deliveries were queued, by any process. */
  queued(): void;
  /** Returns the webhooks of the deliveries that this process holds. */
  held(): HeldWebhook[];
  /** Called with webhooks that were paused, deleted or changed. */
  stopped(webhookIds: ReadonlySet<bigint>): void;
}

/**
 * Detects paused, deleted and changed webhooks, so that no process sends to them, to an old URL, or with replaced secrets or
 * credentials, later than one second after the API call has returned. Looks four times a second over a dedicated connection whose
 * webhooks have changed: the operator's, or which customers'. Held webhooks of others are not read. While the looks fail, no request starts.
 */
export class WebhookWatch {
  readonly #parts: WatchParts;
  readonly #end = new AbortController();
  /** The number of looks that have found changes. A user's change of any webhook raises it. */
  revision = 0n;
  /** For the operator (null) and customers, the revision of the latest change of their webhooks. */
  readonly #changed = new Map<string | null, bigint>();
  /** The same for all others. */
  #othersChanged = 0n;
  /** The time just before the last successful read was sent. */
  #readAt = LONG_AGO;
  readonly #running: Promise<void>;
  #isFailing = false;

  constructor(parts: WatchParts) {
    this.#parts = parts;
    this.#running = this.#run();
  }

  /**
   * Whether requests may start: the last read is less than one second old by the monotonic and by the wall clock. The monotonic clock
   * stands still while the machine is suspended.
   */
  isFresh(): boolean {
    const { now, wall } = currentMoment(this.#parts.clock);
    return now - this.#readAt.now < MAX_AGE_MS && wall - this.#readAt.wall < MAX_AGE_MS;
  }

  /** Returns which of the held webhooks are paused, deleted or changed, of those whose owners' webhooks have changed since a revision. */
  async stoppedSince(revision: bigint, held: () => HeldWebhook[]): Promise<ReadonlySet<bigint>> {
    const stopped = new Set<bigint>();
    for (let known = revision; known !== this.revision; ) {
      const since = known;
      known = this.revision;
      const { signal } = this.#end;
      const found = await untilAnswered(async () => this.#stoppedOf(held(), since), { signal });
      for (const id of found) stopped.add(id);
    }
    return stopped;
  }

  async #stoppedOf(held: readonly HeldWebhook[], since: bigint): Promise<bigint[]> {
    const concerned = held.filter(
      ({ customer = null }) => (this.#changed.get(customer) ?? this.#othersChanged) > since,
    );
    return concerned.length === 0 ? [] : this.#parts.loadStopped(concerned);
  }

  #note(changed: Changed): void {
    this.revision += 1n;
    if (changed !== "all") for (const customer of changed) this.#changed.set(customer, this.revision);
    if (changed !== "all" && this.#changed.size <= MAX_KNOWN) return;
    this.#changed.clear();
    this.#othersChanged = this.revision;
  }

  async close(): Promise<void> {
    this.#end.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, openFeed, queued } = this.#parts;
    const { signal } = this.#end;
    for (; !signal.aborted; await clock.wait(RECONNECT_DELAY_MS, { signal, ref: false })) {
      let feed: ChangeFeed | undefined;
      try {
        feed = await openFeed(queued);
        // Notifications may have been missed while disconnected.
        queued();
        for (; !signal.aborted; await clock.wait(READ_INTERVAL_MS, { signal, ref: false }))
          await this.#read(feed);
      } catch (err) {
        if (!signal.aborted) this.#logFailure(err);
      } finally {
        await feed?.close();
      }
    }
  }

  async #read(feed: ChangeFeed): Promise<void> {
    const sent = currentMoment(this.#parts.clock);
    const changed = await feed.look();
    if (changed === "all" || changed.size > 0) {
      const before = this.revision;
      // Noted before the check of the deliveries held now: a delivery that is taken over during that check was claimed under the older
      // revision, and `stoppedSince` must see that the revision has changed. If the check fails, the next feed begins with a look at all.
      this.#note(changed);
      const stopped = await this.#stoppedOf(this.#parts.held(), before);
      if (stopped.length > 0) this.#parts.stopped(new Set(stopped));
    }
    this.#readAt = sent;
    if (this.#isFailing) this.#parts.log.info("webhook changes readable again; deliveries resumed");
    this.#isFailing = false;
  }

  #logFailure(err: unknown): void {
    if (this.#isFailing) return;
    this.#isFailing = true;
    const level = isTransient(err) ? "warn" : "error";
    this.#parts.log[level]({ err }, "reading webhook changes failed; deliveries paused");
  }
}
