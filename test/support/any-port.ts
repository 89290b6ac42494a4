import { randomInt } from "node:crypto";
import { choosePort } from "../../src/lib/dev-servers/process/ports.ts";

/**
 * Below the ports that systems give to connections: one of these may take what a killed server had, before it is back.
 * No port in between is blocked for deliveries.
 */
const [LOWEST, HIGHEST] = [12_000, 27_000];

/** A free TCP port on 127.0.0.1 that stays free, as far as anybody can tell, until a test listens on it. */
export function anyPort(): Promise<number> {
  return choosePort([randomInt(LOWEST, HIGHEST)]);
}
