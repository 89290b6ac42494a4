import { count, type Db, plainArray, textArray } from "../lib/pg/index.ts";
import { WORKERS } from "./conditions.ts";

/** The notification channel for holds. A notification names the window, an endpoint's id or a webhook's, and the milliseconds. */
export const HOLDS_CHANNEL = "webhook_holds";

/** What a receiver asks for in the response to an attempt. */
export interface ReceiverWish {
  /** The time for which it wants no requests, in milliseconds; 0 for none. */
  holdMs: number;
  /** Whether it has refused the request for now: 429, or 503 with Retry-After. */
  isRefusal: boolean;
  /** The deliveries per second that it says that it takes; null if it says nothing. */
  statedRate: number | null;
}

/** A wish, and what is known of the webhook whose receiver has it. */
export interface WebhookWish extends ReceiverWish {
  webhookId: bigint;
  /** The normalized URL that answered. A webhook that has moved meanwhile is not held. */
  targetUrl: string;
  /**
   * The deliveries that it accepted from this process in the last second. Null if it accepted none since the refusal before: then it
   * is unavailable, and the refusal says nothing about the rate.
   */
  acceptedRate: number | null;
}

/**
 * The part of the pace below which the accepted rate counts as the rate that the receiver takes. Above it, the pace counts, because the
 * second before a refusal may have had fewer deliveries by chance.
 */
const FAR_BELOW = 1 / 4;
/** The lowest rate that is learnt, in deliveries per second. */
const MIN_RATE = 0.1;
/**
 * The time in which the pace grows from half of the rate to the rate, and then doubles: this many seconds, or the time of this many
 * deliveries at the rate if that is longer.
 */
const GROWTH = { seconds: 60, deliveries: 20 };
/** The number of these times after which there is no pace. */
const FORGOTTEN_AFTER = 10;
/**
 * The time after a hold, in seconds, in which a claim takes at most this number of deliveries of the webhook. If the receiver refuses
 * again, further deliveries would have been claimed and released in vain.
 */
const AFTER_HOLD = { seconds: 5, deliveries: 8 };
/** The time whose deliveries a claim may take at once with a pace, in seconds; at least one delivery. More would exceed limits per second. */
const BURST_S = 0.2;
/** The time in which further refusals without a hold count as the same refusal, in seconds: their requests were in flight. */
const SAME_REFUSAL_S = 1;

/** SQL for the most deliveries of row `w` of `webhooks` that a claim may take soon after a hold; null for no limit. */
export const fewAfterHold = (w: string) =>
  `case when ${w}.held_until > now() - interval '${AFTER_HOLD.seconds} seconds' then ${AFTER_HOLD.deliveries} end`;

/** SQL for the time in which a pace grows from half of a rate to the rate, in seconds. */
const growthOf = (rate: string) => `greatest(${GROWTH.seconds}, ${GROWTH.deliveries} / ${rate})`;

/** SQL for whether the receiver of row `w` of `webhooks` wants no requests now; null if it never asked for that. */
export const isHeld = (w: string) => `(${w}.held_until > now())`;

/**
 * SQL for the pace of row `w` of `webhooks`, in deliveries per second; null for none. It is half of `receiver_rate` after a refusal,
 * grows steadily up to that rate, and then doubles again and again, because the receiver may take more by now.
 */
export const paceOf = (w: string) => `
  case when ${w}.paced_from is not null and ${w}.receiver_rate is not null then (
    select case when age < 0 then 0.5 when age < 1 then 0.5 + age / 2 when age < ${FORGOTTEN_AFTER} then 2 ^ (age - 1) end
      * ${w}.receiver_rate
    from (
      select extract(epoch from now() - ${w}.paced_from)::float8 / ${growthOf(`${w}.receiver_rate`)} as age
    ) growth
  ) end`;

/**
 * SQL for the maximum number of tokens in a bucket: the tokens of one second, at least one, because the limit of a long period is spread
 * evenly over the period. With a pace below the rate limit, it is smaller. Both are in deliveries per second.
 */
export const burstOf = (rate: string, pace: string) =>
  `greatest(1, case when ${pace} is null or ${pace} >= ${rate} then ${rate} else ${pace} * ${BURST_S} end)`;

/**
 * Stores the wishes of receivers, for all webhooks of an endpoint alike. A hold never becomes shorter. A refusal halves the pace; the rate
 * that a receiver states when its quota is used up is the pace, unless that is lower. Notifies all workers of holds.
 */
export async function heedWishes(db: Db, wishes: readonly WebhookWish[]): Promise<void> {
  if (wishes.length === 0) return;
  const pace = paceOf("w");
  const accepted = `x.accepted * greatest(1, cardinality(${WORKERS}))`;
  const ends = "now() + interval '1 millisecond' * x.hold_ms";
  // Requests that are in flight at a refusal are refused, too.
  const isSame = `w.paced_from > now() - interval '1 second' * case when x.hold_ms > 0 then 0 else ${SAME_REFUSAL_S} end`;
  const stated = `greatest(${MIN_RATE}, x.stated)`;
  const isStated = `not x.is_refusal and x.hold_ms > 0 and x.stated is not null and (${pace}) < ${stated} is not true`;
  await count(
    db,
    `with wish as materialized (
        select t.id, max(r.hold_ms) as hold_ms, bool_or(r.is_refusal) as is_refusal, min(r.stated) as stated, max(r.accepted) as accepted
        from unnest(:ids::bigint[], :urls::text[], :holds::float8[], :refusals::bool[],
            :stated::float8[], :accepted::float8[]) as r(webhook_id, url, hold_ms, is_refusal, stated, accepted)
          cross join lateral (
            select w.endpoint_id from webhooks w
            where w.id = r.webhook_id and w.target_url = r.url and w.deleted is null offset 0
          ) o
          cross join lateral (
            select r.webhook_id as id union
            select s.id from webhooks s where s.endpoint_id = o.endpoint_id and s.deleted is null
          ) t
        group by t.id
      ),
      -- By id, as all that lock several webhooks do.
      locked as materialized (
        select w.id from webhooks w where w.id = any(array(select id from wish)) order by w.id for no key update
      ),
      heeded as (
        update webhooks w set
          held_until = case when x.hold_ms > 0 then greatest(w.held_until, ${ends}) else w.held_until end,
          receiver_rate = case
            when ${isStated} then ${stated}
            when not x.is_refusal or ${isSame} then w.receiver_rate
            when x.accepted is null then coalesce(w.receiver_rate, x.stated)
            else greatest(${MIN_RATE}, least(
              x.stated, case when ${accepted} < ${FAR_BELOW} * (${pace}) is not false then ${accepted} else ${pace} end)) end,
          paced_from = case
            when ${isStated} then ${ends} - interval '1 second' * ${growthOf(stated)}
            when not x.is_refusal then w.paced_from
            when ${isSame} then greatest(w.paced_from, case when x.hold_ms > 0 then ${ends} end)
            else greatest(w.held_until, ${ends}) end
        from wish x where x.id = w.id and w.id = any(array(select id from locked))
        returning coalesce(w.endpoint_id::text, w.id::text) as held_window, x.hold_ms
      )
      select pg_notify(:channel, held_window || ' ' || max(hold_ms)::int8) from heeded where hold_ms > 0 group by held_window`,
    {
      ids: plainArray(wishes.map(({ webhookId }) => webhookId)),
      urls: textArray(wishes.map(({ targetUrl }) => targetUrl)),
      holds: plainArray(wishes.map(({ holdMs }) => holdMs)),
      refusals: plainArray(wishes.map(({ isRefusal }) => isRefusal)),
      stated: plainArray(wishes.map(({ statedRate }) => statedRate)),
      accepted: plainArray(wishes.map(({ acceptedRate }) => acceptedRate)),
      channel: HOLDS_CHANNEL,
    },
  );
}
