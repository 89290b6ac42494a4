import { useSyncExternalStore } from "react";

/** The interval between the calls that find out whether the service answers again, in milliseconds. */
export const ASK_AGAIN_MS = 2_000;

/** The time since which the service does not answer, in milliseconds; undefined while it does. */
let since: number | undefined;
const listeners = new Set<() => void>();

/** Notes whether the service answered the latest call. */
export function noteAnswer(answered: boolean): void {
  if (answered === (since === undefined)) return;
  since = answered ? undefined : Date.now();
  for (const listener of [...listeners]) listener();
}

/** Runs a function each time that the service is away, or answers again. @returns what ends that */
export function onAwayChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The time since which the service does not answer, in milliseconds; undefined while it does. */
export const awaySince = (): number | undefined => since;

/** The time since which the service does not answer, in milliseconds; undefined while it does. */
export const useAwaySince = (): number | undefined => useSyncExternalStore(onAwayChange, awaySince);
