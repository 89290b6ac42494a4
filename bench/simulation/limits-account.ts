import type { DeliveryConfig } from "../../src/config/config.ts";
import { verdictOf } from "../../src/delivery/limits/verdict.ts";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import type { SimulatedDelivery } from "../../test/support/simulation/queue-table.ts";
import type { RequestsAccount } from "../../test/support/simulation/simulated-worker.ts";

/** How a request counts: as a probe of a host or webhook whose last outcome was a timeout, or not. */
type Role = "usual" | "host probe" | "webhook probe";

/** A request in flight. */
interface Request {
  role: Role;
}

/** Counts the requests of a worker in flight, independently of its scheduler, and checks them against the limits. */
export class LimitsAccount implements RequestsAccount {
  probes = 0;
  readonly #delivery: DeliveryConfig;
  readonly #exceeded: (what: string) => void;
  readonly #inFlight = new Map<SimulatedDelivery, Request>();
  /** Requests in flight per host, without probes of single webhooks, and per webhook. */
  readonly #toHost: Uint16Array;
  readonly #toWebhook: Uint16Array;
  /** Hosts and webhooks whose last outcome was a timeout. */
  readonly #hungHosts: Uint8Array;
  readonly #hung: Uint8Array;

  constructor(parts: {
    delivery: DeliveryConfig;
    hosts: number;
    webhooks: number;
    exceeded: (what: string) => void;
  }) {
    this.#delivery = parts.delivery;
    this.#exceeded = parts.exceeded;
    this.#toHost = new Uint16Array(parts.hosts);
    this.#toWebhook = new Uint16Array(parts.webhooks);
    this.#hungHosts = new Uint8Array(parts.hosts);
    this.#hung = new Uint8Array(parts.webhooks);
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  started(delivery: SimulatedDelivery): void {
    const { host, number } = delivery.of;
    const request: Request = { role: this.#roleOf(delivery) };
    this.#check(delivery, request.role);
    this.#inFlight.set(delivery, request);
    this.#toWebhook[number] = (this.#toWebhook[number] as number) + 1;
    if (isProbe(request)) this.probes += 1;
    if (takesSlot(request)) this.#toHost[host.number] = (this.#toHost[host.number] as number) + 1;
  }

  ended(delivery: SimulatedDelivery, outcome: Outcome): void {
    const request = this.#inFlight.get(delivery) as Request;
    this.#inFlight.delete(delivery);
    const { host, number } = delivery.of;
    this.#toWebhook[number] = (this.#toWebhook[number] as number) - 1;
    if (isProbe(request)) this.probes -= 1;
    if (takesSlot(request)) this.#toHost[host.number] = (this.#toHost[host.number] as number) - 1;
    const verdict = verdictOf(outcome);
    if (verdict.webhook !== "none") this.#hung[number] = Number(verdict.webhook === "timeout");
    if (verdict.host !== "none") this.#hungHosts[host.number] = Number(verdict.host === "timeout");
  }

  #roleOf({ of: { host, number } }: SimulatedDelivery): Role {
    if (this.#hungHosts[host.number] === 1) return "host probe";
    return this.#hung[number] === 1 ? "webhook probe" : "usual";
  }

  /** Checks the limits for one more request. */
  #check({ of: { host, number } }: SimulatedDelivery, role: Role): void {
    const { maxInFlight: max } = this.#delivery;
    if (this.inFlight >= max) this.#exceeded(`${this.inFlight + 1} in flight, limit ${max}`);
    if ((this.#toWebhook[number] as number) >= this.#delivery.maxPerWebhook)
      this.#exceeded("a webhook's limit");
    if (isProbe({ role }) && this.probes >= Math.max(1, max / 4))
      this.#exceeded("a quarter of the limit by probes");
    if (role === "webhook probe" && (this.#toWebhook[number] as number) > 0)
      this.#exceeded("one probe of a webhook");
    if (role === "host probe" && (this.#toHost[host.number] as number) > 0)
      this.#exceeded("one probe of a host");
    if (role === "usual" && (this.#toHost[host.number] as number) >= this.#delivery.maxPerHost)
      this.#exceeded("a host's limit");
  }
}

const isProbe = ({ role }: Request) => role === "host probe" || role === "webhook probe";

const takesSlot = ({ role }: Request) => role !== "webhook probe";
