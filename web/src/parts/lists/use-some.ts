import { useState } from "react";

/** The number of items that are added to the shown ones. */
const STEP = 50;

/** The first of many items, and the way to more of them; what LoadMore needs. */
export interface Some<T> {
  shown: readonly T[];
  hasMore: boolean;
  onMore: () => void;
}

/** Shows a long list that is there already step by step, so that the page stays quick. */
export function useSome<T>(items: readonly T[], step = STEP): Some<T> {
  const [most, setMost] = useState(step);
  return {
    shown: items.slice(0, most),
    hasMore: items.length > most,
    onMore: () => setMost((now) => now + step),
  };
}
