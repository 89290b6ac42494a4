import { LRUCache } from "lru-cache";
import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";
import { type IncidentChange, joinIncidents, leaveIncidents } from "./track.ts";

/** The time before the end of a certificate from which there is a warning, in days. */
const WARNS_DAYS = 14;
/** The time after which a certificate that was not seen again is ignored, in days. */
const FRESH_DAYS = 3;
/** The time after which a certificate that is seen again is stored again, in milliseconds. */
const STORE_AGAIN_MS = 86_400_000;
/** The maximum number of hosts that a process remembers. */
const MAX_HOSTS = 10_000;

/** The ends of the certificates that a process has seen in handshakes, until they are stored. */
export class SeenCertificates {
  readonly #stored = new LRUCache<string, number>({ max: MAX_HOSTS, ttl: STORE_AGAIN_MS });
  readonly #changed = new Map<string, { host: string; ofCustomers: boolean; ms: number }>();

  /**
   * @param host with its port if it is not 443
   * @param ofCustomers whether the request was one of a customer
   */
  readonly note = (host: string, notAfter: Date, ofCustomers: boolean): void => {
    const ms = notAfter.getTime();
    const key = `${ofCustomers} ${host}`;
    if (this.#stored.get(key) === ms || this.#changed.size >= MAX_HOSTS) return;
    this.#stored.set(key, ms);
    this.#changed.set(key, { host, ofCustomers, ms });
  };

  /** Stores what has changed. */
  async store(db: Db): Promise<void> {
    if (this.#changed.size === 0) return;
    const seen = [...this.#changed].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each);
    this.#changed.clear();
    await rows(
      db,
      `insert into host_certificates (host, of_customers, not_after)
        select * from unnest(:hosts::text[], :ofCustomers::bool[], :ends::timestamptz[])
        on conflict (host, of_customers) do update set not_after = excluded.not_after, seen = now()`,
      {
        hosts: textArray(seen.map(({ host }) => host)),
        ofCustomers: plainArray(seen.map(({ ofCustomers }) => ofCustomers)),
        ends: plainArray(seen.map(({ ms }) => new Date(ms).toISOString())),
      },
    );
  }
}

/** Stores the certificates that this process has seen. */
export const CERTIFICATES_JOB: Job<{ db: Db; certificates?: SeenCertificates }> = {
  name: "store seen certificates",
  everyS: 30,
  run: async ({ db, certificates }) => certificates?.store(db),
};

/**
 * SQL for whether those who see webhook `w` may know certificate `c` of its host. A customer may know a certificate that requests of
 * customers have seen, after an attempt of the webhook itself: its request may have used a connection of another customer.
 */
const IS_KNOWN = `c.of_customers = (w.customer is not null) and (w.customer is null or exists (
  select from rollup_hours r where r.webhook_id = w.id and r.start > now() - interval '${FRESH_DAYS} days'))`;

/** SQL for whether certificate `c` of a host is a warning. One that has ended fails deliveries. */
const ENDS_SOON = `c.not_after > now() and c.not_after < now() + interval '${WARNS_DAYS} days'
  and c.seen > now() - interval '${FRESH_DAYS} days'`;

/**
 * Brings the warnings about certificates up to date: an incident per host whose certificate ends within 14 days. Requires what
 * `trackIncidents` does.
 */
export async function trackCertificates(trx: Db): Promise<IncidentChange[]> {
  const ended = await leaveIncidents(
    trx,
    `not exists (
      select from incidents i join host_certificates c on c.host = i.subject
        join webhooks w on w.id = m.webhook_id and split_part(w.target_url, '/', 3) = c.host and w.deleted is null
      where i.id = m.incident_id and ${ENDS_SOON} and ${IS_KNOWN})`,
    {},
    true,
  );
  const ending = await rows<{ webhookId: bigint; host: string; notAfter: Date; now: Date }>(
    trx,
    `select w.id as "webhookId", c.host, c.not_after as "notAfter", now() as now from host_certificates c cross join lateral (
        select w.id, w.customer from webhooks w where (split_part(w.target_url, '/', 3)) collate "C" = c.host and w.deleted is null offset 0
      ) w
      where ${ENDS_SOON} and ${IS_KNOWN} and not exists (
        select from incident_webhooks m where m.webhook_id = w.id and m.ended is null and m.warning)`,
  );
  const begun = await joinIncidents(
    trx,
    ending.map(({ webhookId, host, notAfter, now: since }) => {
      const error = `certificate ends on ${notAfter.toISOString().slice(0, 10)}; renew the server's certificate`;
      return { webhookId, since, cause: "certificate_ends", subject: host, error };
    }),
    true,
  );
  return [...ended, ...begun];
}
