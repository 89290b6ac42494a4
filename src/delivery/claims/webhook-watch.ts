import type { Logger } from "pino";
import { isTransient, untilAnswered } from "../../db/faults.ts";
import type { ChangeFeed, HeldWebhook, openChangeFeed } from "../../db/queue/changes.ts";
import { type Clock, currentMoment, LONG_AGO } from "../../process/clock.ts";

/** The interval between reads of the revision, in milliseconds. */
const READ_INTERVAL_MS = 250;
/** The maximum age of the last read, in milliseconds, beyond which nothing starts. */
const MAX_AGE_MS = 1_000;
/** The delay between connection attempts, in milliseconds. */
const RECONNECT_DELAY_MS = 500;

/** Receives notifications of changes. */
export interface WatchListener {
  /** Called when deliveries were queued, by any process. */
  queued(): void;
  /** Returns the webhooks of the deliveries that this process holds. */
  held(): HeldWebhook[];
  /** Called with webhooks that were paused, deleted or changed. */
  stopped(webhookIds: ReadonlySet<bigint>): void;
}

/** Dependencies of a watch. */
export interface WatchParts {
  clock: Clock;
  log: Logger;
  /** Connects directly to the database; connections of a pooler cannot listen. */
  openFeed: (on: Parameters<typeof openChangeFeed>[1]) => Promise<ChangeFeed>;
  /** Returns which of the webhooks are paused, deleted or changed. */
  loadStopped: (held: readonly HeldWebhook[]) => Promise<bigint[]>;
  listener: WatchListener;
}

/**
 * Detects paused, deleted and changed webhooks, so that no process sends to them, to an old URL, or with replaced secrets or
 * credentials, later than one second after the API call has returned. Reads a revision number four times a second over a dedicated connection. While that
 * fails, nothing is sent.
 */
export class WebhookWatch {
  readonly #parts: WatchParts;
  readonly #end = new AbortController();
  #revision = -1n;
  /** The latest revision whose changes have been applied. */
  #applied = -1n;
  /** The time of the last read. */
  #readAt = LONG_AGO;
  #running: Promise<void> | undefined;
  #isAway = false;

  constructor(parts: WatchParts) {
    this.#parts = parts;
  }

  /**
   * Whether requests may start: the last read is recent enough to know of changes a second ago. Only the wall clock shows
   * that the machine was suspended since.
   */
  isFresh(): boolean {
    const { now, wall } = currentMoment(this.#parts.clock);
    return now - this.#readAt.now < MAX_AGE_MS && wall - this.#readAt.wall < MAX_AGE_MS;
  }

  /** The known revision of the webhooks. Changes whenever a webhook changes. */
  get revision(): bigint {
    return this.#revision;
  }

  /** The given webhooks that are paused, deleted or changed, if the revision has changed since. */
  async stoppedSince(revision: bigint, held: () => HeldWebhook[]): Promise<ReadonlySet<bigint>> {
    const stopped = new Set<bigint>();
    for (let known = revision; known !== this.#revision; ) {
      known = this.#revision;
      const found = await untilAnswered(() => this.#parts.loadStopped(held()), {
        signal: this.#end.signal,
      });
      for (const id of found) stopped.add(id);
    }
    return stopped;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async close(): Promise<void> {
    this.#end.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      let ended = false;
      let feed: ChangeFeed | undefined;
      try {
        feed = await this.#parts.openFeed({
          queued: () => this.#parts.listener.queued(),
          end: () => {
            ended = true;
          },
        });
        // Notifications may have been missed while disconnected.
        this.#parts.listener.queued();
        while (!signal.aborted && !ended) {
          await this.#read(feed);
          await this.#parts.clock.wait(READ_INTERVAL_MS, { signal, ref: false });
        }
      } catch (err) {
        if (!signal.aborted) this.#tellAway(err);
      } finally {
        await feed?.close();
      }
      await this.#parts.clock.wait(RECONNECT_DELAY_MS, { signal, ref: false });
    }
  }

  async #read(feed: ChangeFeed): Promise<void> {
    const sent = currentMoment(this.#parts.clock);
    const revision = await feed.revision();
    // Set before checking: deliveries held now were claimed under earlier revisions, and later claims check the new
    // one.
    this.#revision = revision;
    if (revision !== this.#applied) {
      const stopped = await this.#parts.loadStopped(this.#parts.listener.held());
      if (stopped.length > 0) this.#parts.listener.stopped(new Set(stopped));
      this.#applied = revision;
    }
    this.#readAt = sent;
    if (this.#isAway) this.#parts.log.info("webhook changes readable again; deliveries resumed");
    this.#isAway = false;
  }

  #tellAway(err: unknown): void {
    if (this.#isAway) return;
    this.#isAway = true;
    if (isTransient(err)) this.#parts.log.warn({ err }, "reading webhook changes failed; deliveries paused");
    else this.#parts.log.error({ err }, "reading webhook changes failed; deliveries paused");
  }
}
