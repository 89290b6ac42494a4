import { isIP } from "node:net";
import type { DeliveryConfig } from "../../config/index.ts";
import type { HostWarnings } from "../../contract/target-rules.ts";
import { bareHost, describeFault, NameResolver } from "../../lib/egress/index.ts";
import { createGuards, type GuardSettings, ofOwner } from "./guards.ts";

/** The timeout of a lookup for a registration, in milliseconds. Shorter than that of deliveries, because a caller waits. */
const LOOKUP_TIMEOUT_MS = 1_000;

/**
 * Creates the check of host names at the registration of webhooks.
 *
 * @param resolver closed with the check. Defaults to a resolver with LOOKUP_TIMEOUT_MS
 */
export function createHostWarnings(
  delivery: GuardSettings & Pick<DeliveryConfig, "proxyDns">,
  resolver = new NameResolver({ timeoutMs: LOOKUP_TIMEOUT_MS }),
): { of: HostWarnings; close(): void } {
  const { proxyDns } = delivery;
  const guards = createGuards(delivery, resolver);
  async function of(targetUrl: string, customer: string | null): Promise<string[]> {
    const guard = ofOwner(guards, customer);
    const host = bareHost(new URL(targetUrl).hostname);
    if (isIP(host) !== 0) return [];
    try {
      if (proxyDns === "remote") guard.checkUnresolved(host);
      else await guard.resolve(host);
      return [];
    } catch (error) {
      return [`the URL was saved, but deliveries to it fail at present: ${describeFault(error as Error)}`];
    }
  }
  return { of, close: () => resolver.close() };
}
