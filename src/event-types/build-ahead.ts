import { slices } from "../calls/index.ts";
import type { CatalogueEntry } from "../contract/catalogue.ts";

/**
 * Builds the messages of event types in short turns, so that what uses them need not: thousands take half a second.
 *
 * @param signal ends the work
 */
export async function buildAhead(types: readonly CatalogueEntry[], signal?: AbortSignal): Promise<void> {
  const nextTurn = slices("");
  for (const type of types) {
    if (signal?.aborted) return;
    void type.payload;
    await nextTurn();
  }
}
