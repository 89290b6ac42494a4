/** What each may have in flight in any case: with one alone, its next request would wait for the last one's record. */
const LEAST_SHARE = 2;

/**
 * The hosts for which something waits that could be sent, in any flow of the same kind. Their slots are shared out among
 * them: whoever got more than its share at the moment would only open more connections, since the others' turn comes
 * later then.
 */
export class Contenders {
  /** By how many flows. */
  readonly #hosts = new Map<string, number>();

  join(host: string): void {
    this.#hosts.set(host, (this.#hosts.get(host) ?? 0) + 1);
  }

  leave(host: string): void {
    const flows = this.#hosts.get(host) ?? 0;
    if (flows > 1) this.#hosts.set(host, flows - 1);
    else this.#hosts.delete(host);
  }

  /** How many of so many slots one host may have. */
  shareOf(slots: number): number {
    return Math.max(LEAST_SHARE, Math.ceil(slots / Math.max(1, this.#hosts.size)));
  }
}
