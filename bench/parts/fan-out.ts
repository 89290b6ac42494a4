/** Hosts and webhooks of an event that goes to many. */
export const HOSTS = 100;
export const WEBHOOKS_PER_HOST = 10;

/** The webhooks' URLs, host by host. */
export function webhookUrls(hosts: readonly string[]): string[] {
  return hosts.flatMap((host) => Array.from({ length: WEBHOOKS_PER_HOST }, (_, n) => `${host}/hooks/${n}`));
}

/** So many events make about so many deliveries when each goes to every webhook. */
export function eventsFor(deliveries: number): number {
  return Math.max(1, Math.round(deliveries / (HOSTS * WEBHOOKS_PER_HOST)));
}
