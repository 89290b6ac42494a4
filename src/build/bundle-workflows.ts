/** Bundles the workflows and sends the bundle to the process that started this one. */

import { fileURLToPath } from "node:url";
import { bundleWorkflowCode, DefaultLogger } from "@temporalio/worker";

const bundle = await bundleWorkflowCode({
  workflowsPath: fileURLToPath(new URL("../../workflows/index.ts", import.meta.url)),
  logger: new DefaultLogger("WARN"),
});
// Ends by itself once it is sent: nothing else keeps it.
process.send?.(bundle, () => process.disconnect?.());
