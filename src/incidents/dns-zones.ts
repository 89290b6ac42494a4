import { getDomain } from "tldts";
import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import type { FailureCause } from "./causes.ts";

/** What to say of the names of a zone, by the causes that may lie in a zone. */
const SUMMARIES: Record<string, string> = {
  dns_not_found: "host names do not resolve",
  dns_failed: "host names could not be looked up",
};
/** The start of the subject of an incident of a zone, followed by its domain. */
const HOSTS_OF = "hosts of ";

/** The cause of an incident with this subject. That of a zone names no single host. */
export function causeIn(subject: string, cause: FailureCause): FailureCause {
  const summary = subject.startsWith(HOSTS_OF) && SUMMARIES[cause.code];
  return summary ? { ...cause, summary } : cause;
}

/** The maximum number of hosts whose names fail already that are compared. Hosts beside it may have incidents of their own. */
const MAX_HOSTS = 10_000;

/** What the zone of a webhook is looked up by. `subject`: of its open incident; null for none. */
interface Unresolved {
  owner: string;
  host: string;
  subject: string | null;
}

/** SQL for those who see webhook `w` and not each other's: customers and apps. */
const OWNER = "json_build_array(w.customer, w.installed_app_id)::text";
/** SQL for the host of webhook `w`, without its port. */
const HOST = "split_part(split_part(w.target_url, '/', 3), ':', 1)";

/**
 * The subjects of failing webhooks whose incident is one of a DNS zone, by id: names of two or more hosts of the zone fail, or the zone's
 * incident is open. A zone is a domain below a public suffix, such as `shop.co.uk` or `me.github.io`. Hosts of other customers and apps do
 * not count, so that a zone tells nobody anything about them.
 */
export async function zonesOf(
  trx: Db,
  failing: readonly { webhookId: bigint; cause: string }[],
): Promise<Map<bigint, string>> {
  const ids = failing.filter(({ cause }) => cause in SUMMARIES).map(({ webhookId }) => webhookId);
  if (ids.length === 0) return new Map();
  const found = await rows<Unresolved & { webhookId: bigint | null }>(
    trx,
    `select w.id as "webhookId", ${OWNER} as owner, ${HOST} as host, null as subject
      from webhooks w where w.id = any(:ids::bigint[])
      union all
      (select distinct null::bigint, ${OWNER}, ${HOST}, i.subject
      from incidents i join incident_webhooks m on m.incident_id = i.id and m.ended is null and not m.warning
        join webhooks w on w.id = m.webhook_id
      where i.closed is null and i.cause = any(:causes::text[]) limit :most::int)`,
    { ids: plainArray(ids), causes: textArray(Object.keys(SUMMARIES)), most: MAX_HOSTS },
  );
  const inZones = found.flatMap((each) => {
    const domain = getDomain(each.host, { allowPrivateDomains: true });
    return domain === null ? [] : [{ ...each, zone: HOSTS_OF + domain }];
  });
  const hosts = Map.groupBy(inZones, ({ owner, zone }) => `${owner} ${zone}`);
  return new Map(
    inZones.flatMap(({ webhookId, owner, zone }) => {
      const beside = hosts.get(`${owner} ${zone}`) ?? [];
      const isZone =
        beside.some(({ subject }) => subject === zone) || new Set(beside.map(({ host }) => host)).size > 1;
      return webhookId !== null && isZone ? [[webhookId, zone] as const] : [];
    }),
  );
}
