import { LRUCache } from "lru-cache";
import type { FilterJob } from "./filter-runner.ts";

/** The time that an owner, and each of its webhooks, gets per turn, in milliseconds. */
const TURN_MS = 2;
/** The estimated time of a job of a webhook without results, in milliseconds. */
const FIRST_ESTIMATE_MS = 0.1;
/** The weight of the latest result in the estimated time of a webhook's jobs. */
const ESTIMATE_WEIGHT = 0.2;
/** The maximum number of owners and webhooks whose used time and estimates are kept while they have no jobs. */
const MAX_KNOWN = 10_000;

/** A job that was taken. */
export interface TakenJob {
  job: FilterJob;
  /** The time that it is expected to take, in milliseconds. */
  estimateMs: number;
}

/** A share of the time. It gets a turn when it has used less than it was given. */
interface Share {
  /** The time left of earlier turns, in milliseconds; negative if more was used. */
  leftMs: number;
}

interface Owner extends Share {
  /** With jobs, in the order of their turns. */
  readonly webhooks: Map<string, Webhook>;
}

interface Webhook extends Share {
  estimateMs: number;
  jobs: FilterJob[];
}

/**
 * Queues jobs, and divides the time that they take evenly between owners, and that of an owner between its webhooks
 * (deficit round robin). Time that was used beyond a turn is deducted from later turns, so that the next job may be of
 * unknown length.
 */
export class TimeShares {
  /** With jobs, in the order of their turns. */
  readonly #owners = new Map<string, Owner>();
  readonly #knownOwners = new LRUCache<string, Owner>({ max: MAX_KNOWN });
  readonly #knownWebhooks = new LRUCache<string, Webhook>({ max: MAX_KNOWN });

  push(job: FilterJob): void {
    this.#webhookOf(job).jobs.push(job);
  }

  /** Puts jobs back that were taken, before those that wait. */
  putBack(taken: readonly TakenJob[]): void {
    for (const { job, estimateMs } of taken.toReversed()) {
      this.#webhookOf(job).jobs.unshift(job);
      this.#spend(job, -estimateMs);
    }
  }

  /**
   * Takes the next job. Unwanted ones are dropped.
   *
   * @returns undefined if there is none
   */
  take(): TakenJob | undefined {
    for (;;) {
      const [found] = this.#owners;
      if (!found) return undefined;
      const [ownerName, owner] = found;
      const [first] = owner.webhooks;
      if (!first) {
        this.#owners.delete(ownerName);
        continue;
      }
      if (!hasTurn(this.#owners, ownerName, owner)) continue;
      const [webhookName, webhook] = first;
      if (!hasTurn(owner.webhooks, webhookName, webhook)) continue;
      const job = webhook.jobs.shift();
      if (!job) owner.webhooks.delete(webhookName);
      else if (job.isWanted?.() !== false) {
        const { estimateMs } = webhook;
        this.#spend(job, estimateMs);
        return { job, estimateMs };
      }
    }
  }

  /**
   * Records the time that a taken job took, in milliseconds.
   *
   * @returns the estimated time of the webhook's next job, in milliseconds
   */
  took({ job, estimateMs }: TakenJob, tookMs: number): number {
    this.#spend(job, tookMs - estimateMs);
    const webhook = this.#knownWebhooks.peek(keyOf(job));
    if (!webhook) return tookMs;
    webhook.estimateMs += (tookMs - webhook.estimateMs) * ESTIMATE_WEIGHT;
    return webhook.estimateMs;
  }

  #spend(job: FilterJob, ms: number): void {
    for (const share of [this.#knownOwners.peek(job.owner), this.#knownWebhooks.peek(keyOf(job))])
      if (share) share.leftMs -= ms;
  }

  #webhookOf(job: FilterJob): Webhook {
    const { owner: ownerName, webhook: webhookName } = job;
    const key = keyOf(job);
    let owner = this.#owners.get(ownerName) ?? this.#knownOwners.get(ownerName);
    if (!owner) {
      owner = { leftMs: 0, webhooks: new Map() };
      this.#knownOwners.set(ownerName, owner);
    }
    this.#owners.set(ownerName, owner);
    let webhook = owner.webhooks.get(webhookName) ?? this.#knownWebhooks.get(key);
    if (!webhook) {
      webhook = { leftMs: 0, estimateMs: FIRST_ESTIMATE_MS, jobs: [] };
      this.#knownWebhooks.set(key, webhook);
    }
    owner.webhooks.set(webhookName, webhook);
    return webhook;
  }
}

const keyOf = ({ owner, webhook }: FilterJob) => `${owner} ${webhook}`;

/** Whether it is the turn of the first share. If it has used up its time, it gets some for its next turn, and becomes the last. */
function hasTurn<T extends Share>(all: Map<string, T>, name: string, share: T): boolean {
  if (share.leftMs > 0) return true;
  share.leftMs += TURN_MS;
  all.delete(name);
  all.set(name, share);
  return false;
}
