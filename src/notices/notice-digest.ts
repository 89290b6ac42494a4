import { type Db, rows, run } from "../lib/pg/index.ts";
import { failedAttempts, MINUTE_RETENTION_HOURS } from "../stats/index.ts";

/** The setting that holds what the latest digest reported. */
const STATE = "notice digest";
/** The maximum number of webhooks that a digest names per list. */
export const MAX_LISTED = 50;

/** A webhook in a digest. */
export interface DigestWebhook {
  id: bigint;
  name: string | null;
  /** The normalised URL that requests go to. */
  targetUrl: string;
  /** The user_id of its customer; null for webhooks of the operator. */
  customer: string | null;
  /** The name of its installed app; null for none. */
  appName: string | null;
}

/** A webhook with a state that lasts. */
export interface LastingState extends DigestWebhook {
  since: Date;
  /** Whether the latest digest did not report it. */
  isNew: boolean;
  /** The last error of a failing webhook. */
  lastError?: string | null;
  /** Why a webhook was disabled. */
  reason?: string;
}

/** The changes since the latest digest, and the failures that still last. */
export interface NoticeDigest {
  /** Longest failing first. */
  failing: LastingState[];
  /** Disabled by their circuit breakers, longest first. */
  disabled: LastingState[];
  /** Webhooks whose filter was switched off because it takes too long, longest first. */
  filterStopped: LastingState[];
  /** Reported as failing by the latest digest, and not failing any more: an attempt has succeeded since. */
  recovered: DigestWebhook[];
  /** Webhooks with failed deliveries since the latest digest, most first. */
  failed: (DigestWebhook & { deliveries: number })[];
  /** From when failed deliveries are counted, and until when: whole minutes. */
  from: Date;
  until: Date;
  /** The state that the next digest compares with. */
  state: string;
}

/** The content of a digest: ids of webhooks, and the end of its period. */
interface State {
  failing: string[];
  disabled: string[];
  filterStopped: string[];
  until: string;
}

/** The state of the latest digest, and the period of the next. */
interface StoredPeriod {
  value: string | null;
  from: Date;
  until: Date;
  /** From when counts by minute are read. */
  minutesFrom: Date;
}

const WEBHOOK = `w.id, w.name, w.target_url as "targetUrl", w.customer,
  (select a.name from installed_apps a where a.id = w.installed_app_id) as "appName"`;

/** The counts by minute, and by hour for the time before `:minutesFrom`, whose minutes may have been deleted. */
const COUNTS = ["hour", "minute"]
  .map(
    (unit) => `select webhook_id, start, attempts, failed_attempts, delivered, failed from rollup_${unit}s
      where start ${unit === "hour" ? "<" : ">="} :minutesFrom`,
  )
  .join(" union all ");

/**
 * Reads a digest of all webhooks: of their health, their circuit breakers, their filters and their failed deliveries. Deliveries are
 * counted up to the minute before the present one, because those are folded into the statistics.
 * If the latest digest is more than a day old, they are counted from the beginning of its hour.
 */
export async function readNoticeDigest(db: Db): Promise<NoticeDigest> {
  const [stored] = await rows<StoredPeriod>(
    db,
    `select s.value, n."minutesFrom", n.until,
        case when s.until < n."minutesFrom" then date_trunc('hour', s.until) else coalesce(s.until, n.until) end as "from"
      from (
        select date_trunc('minute', now() - interval '1 minute') as until,
          date_trunc('hour', now() - make_interval(hours => :hours::int)) as "minutesFrom"
      ) n left join (
        select value, (value::json->>'until')::timestamptz as until from settings where name = :name
      ) s on true`,
    { name: STATE, hours: MINUTE_RETENTION_HOURS - 1 },
  );
  const { value, from, until, minutesFrom } = stored as StoredPeriod;
  const last: Partial<State> = value === null ? {} : JSON.parse(value);

  /** The webhooks in a state. @param before the ids that the latest digest reported */
  async function lasting(query: string, before: readonly string[] = []): Promise<LastingState[]> {
    const known = new Set(before);
    const found = await rows<Omit<LastingState, "isNew">>(
      db,
      `select ${WEBHOOK}, ${query} and w.deleted is null order by since, w.id`,
    );
    return found.map((each) => ({ ...each, isNew: !known.has(String(each.id)) }));
  }
  const failing = await lasting(
    `h.since, h.last_error as "lastError" from webhook_health h join webhooks w on w.id = h.webhook_id
      where h.health = 'failing'`,
    last.failing,
  );
  const disabled = await lasting(
    `b.since, b.reason from webhook_breakers b join webhooks w on w.id = b.webhook_id
      where b.state = 'disabled' and w.paused is not null`,
    last.disabled,
  );
  const filterStopped = await lasting(
    "w.filter_stopped as since from webhooks w where w.filter_stopped is not null",
    last.filterStopped,
  );
  const failingNow = new Set(textIds(failing));
  const recovered = await rows<DigestWebhook>(
    db,
    // Webhooks without attempts for a while are not failing either. Attempts in the minute or hour of `from` may be older than
    // the latest digest.
    `select ${WEBHOOK} from webhooks w where w.id = any(:ids::bigint[]) and w.deleted is null and exists (
        select from (${COUNTS}) m
        where m.webhook_id = w.id and m.start > :from and m.attempts > ${failedAttempts("m")}
      ) order by w.id`,
    { ids: (last.failing ?? []).filter((id) => !failingNow.has(id)), from, minutesFrom },
  );
  const failed = await rows<DigestWebhook & { deliveries: number }>(
    db,
    `select ${WEBHOOK}, m.deliveries from (
        select webhook_id, sum(failed)::int as deliveries from (${COUNTS}) c
        where start >= :from and start < :until and webhook_id > 0 group by webhook_id having sum(failed) > 0
      ) m join webhooks w on w.id = m.webhook_id order by m.deliveries desc, w.id`,
    { from, until, minutesFrom },
  );
  const state: State = {
    failing: [...failingNow],
    disabled: textIds(disabled),
    filterStopped: textIds(filterStopped),
    until: until.toISOString(),
  };
  return { failing, disabled, filterStopped, recovered, failed, from, until, state: JSON.stringify(state) };
}

const textIds = (webhooks: readonly DigestWebhook[]) => webhooks.map(({ id }) => String(id));

/** Stores that a digest was sent, or that there was nothing to send. */
export async function keepNoticeDigest(db: Db, { state }: NoticeDigest): Promise<void> {
  await run(db, db("settings").insert({ name: STATE, value: state }).onConflict("name").merge());
}
