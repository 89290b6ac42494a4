import { vi } from "vitest";
import { LOOK_EVERY_MS, PATIENCE_MS } from "./patience.ts";

const LIMITS = { timeout: PATIENCE_MS, interval: LOOK_EVERY_MS };

/** Waits until the condition holds, and answers what it answered. Fails after `PATIENCE_MS`. */
export function until<T>(condition: () => T | Promise<T>): Promise<Awaited<T>> {
  return vi.waitUntil(condition, LIMITS) as Promise<Awaited<T>>;
}

/** Waits until the assertions pass. Fails after `PATIENCE_MS`, with the last one that did not. */
export function eventually<T>(assertions: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(assertions, LIMITS);
}
