import type { SearchAttributePair } from "@temporalio/common";
import { isCancellation, patched, proxyLocalActivities, upsertSearchAttributes } from "@temporalio/workflow";
import type { Activities } from "../activities.ts";
import type { DispatchInput, Searchable } from "../dispatch-input.ts";

/**
 * Sets search attributes if they are registered. Temporal refuses and repeats a workflow task that sets others. The local
 * activity is then asked again, because its result is stored with the task; so a run continues when operators remove
 * attributes, and sets them once they exist.
 *
 * @returns undefined if it is done: a run of an earlier release must not wait, because its history has no wait
 */
export function showInSearch(
  input: DispatchInput,
  attributes: keyof Searchable,
  values: SearchAttributePair[],
): Promise<void> | undefined {
  if (patched("ask-searchable")) return showIfRegistered(attributes, values);
  const wasRegistered = attributes === "failing" ? input.searchAttributes : input.attemptsSearchable;
  if (wasRegistered) upsertSearchAttributes(values);
  return undefined;
}

async function showIfRegistered(attributes: keyof Searchable, values: SearchAttributePair[]): Promise<void> {
  const { readSearchable } = proxyLocalActivities<Pick<Activities, "readSearchable">>({
    startToCloseTimeout: "5 seconds",
    retry: { maximumAttempts: 1 },
  });
  try {
    if ((await readSearchable())[attributes]) upsertSearchAttributes(values);
  } catch (error) {
    if (isCancellation(error)) throw error;
  }
}
