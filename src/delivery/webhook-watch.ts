import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import type { Db } from "../db/database.ts";
import { isTransient, untilAnswered } from "../db/faults.ts";
import { type ChangeFeed, loadStopped, openChangeFeed } from "../db/queue/changes.ts";

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

/**
 * Watches for webhooks that are paused or deleted, so that nothing is sent to them later than a second after that was
 * answered, by whichever process: it reads a revision four times a second, over a connection of its own, and while it cannot
 * nothing is sent.
 */
export class WebhookWatch {
  readonly #db: Db;
  readonly #url: string;
  readonly #log: Logger;
  readonly #listener: WatchListener;
  readonly #end = new AbortController();
  #revision = -1n;
  /** The revision whose changes are done with. */
  #applied = -1n;
  #readAt = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  #isAway = false;

  /** @param url of PostgreSQL itself; connections of a pooler cannot listen */
  constructor(db: Db, url: string, log: Logger, listener: WatchListener) {
    this.#db = db;
    this.#url = url;
    this.#log = log;
    this.#listener = listener;
  }

  /** Whether requests may start: what was paused or deleted a second ago is known. */
  isFresh(): boolean {
    return performance.now() - this.#readAt < FRESH_MS;
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
      const found = await untilAnswered(() => loadStopped(this.#db, webhookIds()), {
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
        feed = await openChangeFeed(this.#url, {
          queued: () => this.#listener.queued(),
          end: () => {
            ended = true;
          },
        });
        // Told of nothing while there was no connection.
        this.#listener.queued();
        while (!signal.aborted && !ended) {
          await this.#read(feed);
          await wait(READ_MS, undefined, { signal, ref: false }).catch(() => {});
        }
      } catch (err) {
        if (!signal.aborted) this.#tellAway(err);
      } finally {
        await feed?.close();
      }
      await wait(RECONNECT_MS, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  async #read(feed: ChangeFeed): Promise<void> {
    const sent = performance.now();
    const revision = await feed.revision();
    // What is held now was claimed before; what is claimed from now on is looked at when it comes.
    this.#revision = revision;
    if (revision !== this.#applied) {
      const stopped = await loadStopped(this.#db, this.#listener.held());
      if (stopped.length > 0) this.#listener.stopped(new Set(stopped));
      this.#applied = revision;
    }
    this.#readAt = sent;
    if (this.#isAway) this.#log.info("changes of webhooks can be read again; deliveries go on");
    this.#isAway = false;
  }

  #tellAway(err: unknown): void {
    if (this.#isAway) return;
    this.#isAway = true;
    if (isTransient(err))
      this.#log.warn({ err }, "changes of webhooks cannot be read; nothing is sent until they can");
    else this.#log.error({ err }, "changes of webhooks cannot be read; nothing is sent until they can");
  }
}
