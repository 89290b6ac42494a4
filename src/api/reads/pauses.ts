/** The time after which work pauses for other calls, in milliseconds. */
const SLICE_MS = 5;

/**
 * Returns a function that long work calls between its parts: it pauses for other calls if the work has taken 5 ms (SLICE_MS)
 * since the last pause.
 */
export function pauses(): () => Promise<void> {
  let sliceEnd = performance.now() + SLICE_MS;
  return async () => {
    if (performance.now() < sliceEnd) return;
    await new Promise((resolve) => setImmediate(resolve));
    sliceEnd = performance.now() + SLICE_MS;
  };
}
