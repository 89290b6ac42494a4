import type { DeliveryConfig } from "../../config/index.ts";
import { type AddressGuard, createAddressGuard, type Resolver } from "../../lib/egress/index.ts";

/** What requests of the operator's webhooks use, and what requests of customers' webhooks use. */
export interface ByOwner<T> {
  operator: T;
  customers: T;
}

/** The part of a webhook's owner. @param customer its customer; null for the operator's */
export function ofOwner<T>(parts: ByOwner<T>, customer: string | null | undefined): T {
  return customer == null ? parts.operator : parts.customers;
}

export type Guards = ByOwner<AddressGuard>;

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
