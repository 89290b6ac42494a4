import type { DeliveryConfig } from "../../config/index.ts";
import { type AddressGuard, createAddressGuard, type Resolver } from "../../lib/egress/index.ts";

/** The address guards of the operator's webhooks, and of those of customers. */
export interface Guards {
  operator: AddressGuard;
  customers: AddressGuard;
}

/** The settings of address guards. */
export type GuardSettings = Pick<
  DeliveryConfig,
  "allowedNetworks" | "allowedHosts" | "allowedPorts" | "customerNetworks"
>;

/**
 * Creates the address guards. What the operator's own webhooks may reach is closed to customers, who may be strangers. The allowed ports
 * are the same: a port says which protocol a server speaks, wherever it is.
 *
 * @param resolver resolves host names. Defaults to the hosts file and DNS
 */
export function createGuards(settings: GuardSettings, resolver?: Resolver): Guards {
  const { allowedNetworks, allowedHosts, allowedPorts, customerNetworks } = settings;
  const common = { allowedPorts, ...(resolver ? { resolver } : {}) };
  return {
    operator: createAddressGuard(allowedNetworks, { ...common, allowedHosts }),
    customers: createAddressGuard(customerNetworks, { ...common, customers: true }),
  };
}

/** The guard of a webhook. @param customer its customer; null for the operator's */
export function guardOf(guards: Guards, customer: string | null | undefined): AddressGuard {
  return customer == null ? guards.operator : guards.customers;
}
