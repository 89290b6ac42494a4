import { part } from "./parts.ts";
import { spawnService } from "./spawned-service.ts";

export { type ServiceProcess, startArguments } from "./spawned-service.ts";

/** Runs the service of this build; otherwise as `spawnService`. */
export async function startServiceProcess(...options: Parameters<typeof spawnService>) {
  await Promise.all([part("workflows"), part("page")]);
  return spawnService(...options);
}
