/** The number of hosts, and of webhooks per host, of an event with many recipients. */
export const HOSTS = 100;
export const WEBHOOKS_PER_HOST = 10;

/** The URLs of the webhooks, host by host. @param each the number of webhooks of a host */
export function webhookUrls(hosts: readonly string[], each = WEBHOOKS_PER_HOST): string[] {
  return hosts.flatMap((host) => Array.from({ length: each }, (_, n) => `${host}/hooks/${n}`));
}

/** The number of events that results in about the given number of deliveries. */
export function eventsFor(deliveries: number): number {
  return Math.max(1, Math.round(deliveries / (HOSTS * WEBHOOKS_PER_HOST)));
}
