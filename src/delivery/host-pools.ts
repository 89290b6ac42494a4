import { Dispatcher, Pool } from "undici";

/**
 * The connections of a process, a pool a host. Hosts come and go by the thousand, so only so many keep a pool: the
 * one that has been idle for longest makes room, and a pool whose last connection has closed is forgotten.
 */
export class HostPools extends Dispatcher {
  readonly #options: Pool.Options;
  readonly #maxHosts: number;
  /** In the order of their last use. */
  readonly #pools = new Map<string, Pool>();
  readonly #lastUsed = new WeakMap<Pool, number>();

  /** @param maxHosts hosts that may keep connections at the same time; more only while all of them are busy */
  constructor(maxHosts: number, options: Pool.Options) {
    super();
    this.#maxHosts = maxHosts;
    this.#options = options;
  }

  /** Hosts with a pool, and their open connections. */
  get size(): { hosts: number; connections: number } {
    let connections = 0;
    for (const pool of this.#pools.values()) connections += pool.stats.connected;
    return { hosts: this.#pools.size, connections };
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    return this.#pool(String(options.origin)).dispatch(options, handler);
  }

  override async close(): Promise<void> {
    await Promise.all(this.#drain().map((pool) => pool.close()));
  }

  override async destroy(): Promise<void> {
    await Promise.all(this.#drain().map((pool) => pool.destroy()));
  }

  #pool(origin: string): Pool {
    const now = performance.now();
    const known = this.#pools.get(origin);
    if (known && !this.#isStale(known, now)) {
      this.#pools.delete(origin);
      this.#pools.set(origin, known);
      this.#lastUsed.set(known, now);
      return known;
    }
    if (known) this.#remove(origin, known);
    if (this.#pools.size >= this.#maxHosts) this.#makeRoom();
    const pool = new Pool(origin, this.#options);
    const forgetUnused = () => {
      if (this.#pools.get(origin) === pool && pool.stats.connected === 0 && isIdle(pool))
        this.#remove(origin, pool);
    };
    pool.on("disconnect", forgetUnused).on("connectionError", forgetUnused);
    this.#pools.set(origin, pool);
    this.#lastUsed.set(pool, now);
    return pool;
  }

  /** Idle for so long that its connections should be gone: a busy process looks at its timers late. */
  #isStale(pool: Pool, now: number): boolean {
    const idleFor = now - (this.#lastUsed.get(pool) ?? now);
    return idleFor > (this.#options.keepAliveTimeout ?? Number.POSITIVE_INFINITY) && isIdle(pool);
  }

  #makeRoom(): void {
    for (const [origin, pool] of this.#pools) {
      if (!isIdle(pool)) continue;
      this.#remove(origin, pool);
      return;
    }
  }

  #remove(origin: string, pool: Pool): void {
    this.#pools.delete(origin);
    // Nothing is under way in it, so nobody waits for its end.
    pool.close().catch(() => {});
  }

  #drain(): Pool[] {
    const pools = [...this.#pools.values()];
    this.#pools.clear();
    return pools;
  }
}

function isIdle({ stats }: Pool): boolean {
  return stats.running === 0 && stats.pending === 0 && stats.queued === 0;
}
