import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import type { FilterInput, FilterResult, FilterRunner, FilterText } from "../../filters/index.ts";
import type { ClaimedDelivery, EventContent } from "../../queue/index.ts";
import type { ClaimedWebhook } from "../../webhooks/index.ts";

/**
 * Claims of first attempts skip a webhook whose waiting evaluations are estimated to take this long, in milliseconds, and all webhooks of
 * an owner whose evaluations together do.
 */
const FULL_MS = { webhook: 100, owner: 1_000 };
/** If the waiting evaluations of a webhook would take this long, in milliseconds, those beyond FULL_MS.webhook are released. */
const OVERFULL_MS = 1_000;
/** The number of waiting deliveries from which no first attempt is claimed. Deliveries of skipped webhooks do not count. */
const MAX_WAITING = 2_048;
/** The number of consecutive slow evaluations after which a filter is switched off. */
const MAX_SLOW = 10;
/** The maximum number of webhooks whose evaluations are remembered. */
const MAX_KNOWN = 10_000;
/** The owner of all filters of webhooks without an installed app or a customer. */
const OPERATOR = "operator";

/** The owner of a webhook's filter: its customer and installed app. Owners share the time of the filter thread evenly. */
function ownerOf({ customer = null, installedAppId }: ClaimedWebhook): string {
  return customer === null ? (installedAppId ?? OPERATOR) : JSON.stringify([customer, installedAppId]);
}

/** The evaluations of a webhook's filter. */
interface Evaluations {
  /** The estimated duration of the next evaluation, in milliseconds. */
  estimateMs: number;
  /** The number of latest consecutive evaluations that were slow. */
  slow: number;
}

/** The waiting deliveries of a webhook. */
interface Waiting<T> {
  readonly owner: string;
  readonly tasks: Set<T>;
  readonly evaluations: Evaluations;
}

/** Dependencies of filters. */
export interface FiltersParts {
  runner: FilterRunner;
  log: Logger;
  /** Called for each slow evaluation, which took longer than FILTER_TIMEOUT. */
  onSlow(webhook: ClaimedWebhook): void;
  /** Called when a filter is switched off, after MAX_SLOW consecutive slow evaluations. */
  onStopped(webhook: ClaimedWebhook): void;
}

/**
 * Evaluates filters for first attempts, and holds the deliveries that wait for the results. If a filter cannot be evaluated for an event,
 * the event is sent.
 *
 * @template T the deliveries
 */
export class Filters<T extends { readonly delivery: ClaimedDelivery }> {
  readonly #parts: FiltersParts;
  readonly #ended: (task: T, isSent: boolean) => void;
  readonly #givenBack: (tasks: readonly T[]) => void;
  readonly #waiting = new Map<bigint, Waiting<T>>();
  readonly #texts = new WeakMap<ClaimedWebhook, FilterText>();
  readonly #inputs = new WeakMap<EventContent, FilterInput>();
  readonly #evaluations = new LRUCache<bigint, Evaluations>({
    max: MAX_KNOWN,
    memoMethod: () => ({ estimateMs: 0, slow: 0 }),
  });
  /** Webhooks whose filter is switched off, or not valid, until they change. */
  readonly #unfiltered = new WeakSet<ClaimedWebhook>();

  /**
   * @param ended called with each result, unless the delivery was removed before
   * @param givenBack called with removed deliveries of a webhook whose evaluations reach OVERFULL_MS
   */
  constructor(
    parts: FiltersParts,
    ended: (task: T, isSent: boolean) => void,
    givenBack: (tasks: readonly T[]) => void,
  ) {
    this.#parts = parts;
    this.#ended = ended;
    this.#givenBack = givenBack;
  }

  /** Whether the delivery waits for a result of its webhook's filter. Test events are always sent. */
  appliesTo({ webhook }: ClaimedDelivery, { test, payload }: EventContent): boolean {
    return !!webhook.filter && !test && payload !== null && !this.#unfiltered.has(webhook);
  }

  add(task: T, content: EventContent): void {
    const { webhook } = task.delivery;
    const waiting = this.#waitingOf(webhook);
    const { evaluations, tasks } = waiting;
    tasks.add(task);
    const { process, filter } = webhook;
    this.#parts.runner.run({
      owner: waiting.owner,
      webhook: String(webhook.id),
      filter: this.#texts.getOrInsertComputed(webhook, () => ({ process, expression: filter ?? "" })),
      event: this.#inputs.getOrInsertComputed(content, () => ({
        payload: content.payload ?? "",
        userId: content.userId,
      })),
      isWanted: () => tasks.has(task),
      done: (result, estimateMs) => {
        evaluations.estimateMs = estimateMs;
        this.#remove(task);
        this.#note(webhook, evaluations, result);
        this.#ended(task, result.sent);
        const excess = this.#removeExcess(waiting);
        if (excess.length > 0) this.#givenBack(excess);
      },
    });
  }

  #waitingOf(webhook: ClaimedWebhook): Waiting<T> {
    const { id } = webhook;
    return this.#waiting.getOrInsertComputed(id, () => {
      const evaluations = this.#evaluations.memo(id);
      return { owner: ownerOf(webhook), tasks: new Set(), evaluations };
    });
  }

  /** The waiting deliveries. */
  *tasks(): Generator<T> {
    for (const { tasks } of this.#waiting.values()) yield* tasks;
  }

  /**
   * The webhooks that claims of first attempts skip, because enough of their deliveries wait.
   *
   * @returns undefined if nothing may be claimed
   */
  excluded(): bigint[] | undefined {
    const ofOwners = new Map<string, number>();
    for (const each of this.#waiting.values())
      ofOwners.set(each.owner, (ofOwners.get(each.owner) ?? 0) + waitingMs(each));
    const excluded: bigint[] = [];
    let others = 0;
    for (const [id, each] of this.#waiting) {
      const isFull = waitingMs(each) >= FULL_MS.webhook || (ofOwners.get(each.owner) ?? 0) >= FULL_MS.owner;
      if (isFull) excluded.push(id);
      else others += each.tasks.size;
    }
    return others < MAX_WAITING ? excluded : undefined;
  }

  /** Removes and returns the waiting deliveries for which `wanted` is true: they get no result. */
  remove(wanted: (task: T) => boolean): T[] {
    const removed = [...this.tasks()].filter(wanted);
    for (const task of removed) this.#remove(task);
    return removed;
  }

  /** At OVERFULL_MS, removes and returns the deliveries beyond FULL_MS.webhook: while they wait, their payloads stay in memory. */
  #removeExcess(waiting: Waiting<T>): T[] {
    if (waitingMs(waiting) < OVERFULL_MS) return [];
    const excess = [...waiting.tasks].slice(Math.ceil(FULL_MS.webhook / waiting.evaluations.estimateMs));
    for (const task of excess) this.#remove(task);
    return excess;
  }

  #remove(task: T): void {
    const { id } = task.delivery.webhook;
    const waiting = this.#waiting.get(id);
    waiting?.tasks.delete(task);
    if (waiting?.tasks.size === 0) this.#waiting.delete(id);
  }

  #note(webhook: ClaimedWebhook, evaluations: Evaluations, { problem, ...result }: FilterResult): void {
    const { log, onSlow, onStopped } = this.#parts;
    if (problem === "invalid" && !this.#unfiltered.has(webhook)) {
      // For example, a newer release has stored a filter that this release cannot compile.
      this.#unfiltered.add(webhook);
      const webhookId = String(webhook.id);
      log.error({ webhookId, ...result }, "the filter of a webhook is not valid; its events are sent");
    }
    evaluations.slow = problem === "slow" ? evaluations.slow + 1 : 0;
    if (evaluations.slow === 0) return;
    onSlow(webhook);
    if (evaluations.slow < MAX_SLOW || this.#unfiltered.has(webhook)) return;
    this.#unfiltered.add(webhook);
    evaluations.slow = 0;
    onStopped(webhook);
    for (const task of this.remove(({ delivery }) => delivery.webhook === webhook)) this.#ended(task, true);
  }
}

function waitingMs({ tasks, evaluations }: Waiting<unknown>): number {
  return tasks.size * evaluations.estimateMs;
}
