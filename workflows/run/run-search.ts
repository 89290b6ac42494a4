import type { SearchAttributePair } from "@temporalio/common";
import {
  deprecatePatch,
  isCancellation,
  proxyLocalActivities,
  upsertSearchAttributes,
} from "@temporalio/workflow";
import type { Activities } from "../activities.ts";
import type { Searchable } from "../dispatch-input.ts";

/**
 * Sets search attributes if they are registered. Temporal refuses and repeats a workflow task that sets others. The local
 * activity is then asked again, because its result is stored with the task; so a run continues when operators remove
 * attributes, and sets them once they exist.
 */
export async function showInSearch(
  attributes: keyof Searchable,
  values: SearchAttributePair[],
): Promise<void> {
  deprecatePatch("ask-searchable");
  const { readSearchable } = proxyLocalActivities<Activities>({
    startToCloseTimeout: "5 seconds",
    retry: { maximumAttempts: 1 },
  });
  try {
    if ((await readSearchable())[attributes]) upsertSearchAttributes(values);
  } catch (error) {
    if (isCancellation(error)) throw error;
  }
}
