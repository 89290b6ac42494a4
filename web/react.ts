/** Preact, with what its form of React lacks and libraries import. */
import { options } from "preact";
import type { ReactNode } from "react";

// @ts-expect-error Its types are one object, its code has names.
export * from "preact/compat";
export { default } from "preact/compat";

// Effects follow their cause at once, as React's do after a click or a key, and not after the next frame.
options.requestAnimationFrame = queueMicrotask;

/** Shows its children, or keeps none. */
export function Activity({ mode, children }: { mode: "visible" | "hidden"; children: ReactNode }) {
  return mode === "hidden" ? null : children;
}

/** The state itself: the router asks for another one only in transitions, which the page does not use. */
export function useOptimistic<T>(state: T): [T, (state: T) => void] {
  return [state, () => {}];
}
