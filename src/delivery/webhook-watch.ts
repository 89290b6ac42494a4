import type { Logger } from "pino";
import { isTransient, untilAnswered } from "../db/faults.ts";
import type { ChangeFeed, openChangeFeed } from "../db/queue/changes.ts";
import type { Clock } from "../process/clock.ts";

/** How often the revision is read, in milliseconds. */
const READ_MS = 250;
/** Nothing starts when the last reading began longer ago, in milliseconds. */
const FRESH_MS = 1_000;
/** Between two attempts to connect, in milliseconds. */
const RECONNECT_MS = 500;

/** What is told of changes. */
export interface WatchListener {
  /** Deliveries were queued somewhere. */
  queued(): void;
  /** The webhooks that this process holds deliveries of. */
  held(): bigint[];
  /** Webhooks that get nothing any more. */
  stopped(webhookIds: ReadonlySet<bigint>): void;
}

/** What a watch works with. */
export interface WatchParts {
  clock: Clock;
  log: Logger;
  /** Connects to the database; not by way of a pooler, whose connections cannot listen. */
  openFeed: (on: Parameters<typeof openChangeFeed>[1]) => Promise<ChangeFeed>;
  /** Those of the webhooks that get nothing any more. */
  loadStopped: (webhookIds: readonly bigint[]) => Promise<bigint[]>;
  listener: WatchListener;
}

/**
 * Watches for webhooks that are paused or deleted, so that nothing is sent to them later than a second after that was
 * answered, by whichever process: it reads a revision four times a second, over a connection of its own, and while it cannot
 * nothing is sent.
 */
export class WebhookWatch {
  readonly #parts: WatchParts;
  readonly #end = new AbortController();
  #revision = -1n;
  /** The revision whose changes are done with. */
  #applied = -1n;
  #readAt = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  #isAway = false;

  constructor(parts: WatchParts) {
    this.#parts = parts;
  }

  /** Whether requests may start: what was paused or deleted a second ago is known. */
  isFresh(): boolean {
    return this.#parts.clock.now() - this.#readAt < FRESH_MS;
  }

  /** Which state of the webhooks is known; changes with each of theirs. */
  get revision(): bigint {
    return this.#revision;
  }

  /** The webhooks among those that get nothing any more, where the revision has changed since. */
  async stoppedSince(revision: bigint, webhookIds: () => bigint[]): Promise<ReadonlySet<bigint>> {
    const stopped = new Set<bigint>();
    for (let known = revision; known !== this.#revision; ) {
      known = this.#revision;
      const found = await untilAnswered(() => this.#parts.loadStopped(webhookIds()), {
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
        // Told of nothing while there was no connection.
        this.#parts.listener.queued();
        while (!signal.aborted && !ended) {
          await this.#read(feed);
          await this.#parts.clock.wait(READ_MS, { signal, ref: false });
        }
      } catch (err) {
        if (!signal.aborted) this.#tellAway(err);
      } finally {
        await feed?.close();
      }
      await this.#parts.clock.wait(RECONNECT_MS, { signal, ref: false });
    }
  }

  async #read(feed: ChangeFeed): Promise<void> {
    const sent = this.#parts.clock.now();
    const revision = await feed.revision();
    // What is held now was claimed before; what is claimed from now on is looked at when it comes.
    this.#revision = revision;
    if (revision !== this.#applied) {
      const stopped = await this.#parts.loadStopped(this.#parts.listener.held());
      if (stopped.length > 0) this.#parts.listener.stopped(new Set(stopped));
      this.#applied = revision;
    }
    this.#readAt = sent;
    if (this.#isAway) this.#parts.log.info("changes of webhooks can be read again; deliveries go on");
    this.#isAway = false;
  }

  #tellAway(err: unknown): void {
    if (this.#isAway) return;
    this.#isAway = true;
    if (isTransient(err))
      this.#parts.log.warn({ err }, "changes of webhooks cannot be read; nothing is sent until they can");
    else this.#parts.log.error({ err }, "changes of webhooks cannot be read; nothing is sent until they can");
  }
}
