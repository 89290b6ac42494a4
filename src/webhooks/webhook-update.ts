import { isDeepStrictEqual } from "node:util";
import type { Scope } from "../calls/index.ts";
import { processName } from "../contract/catalogue.ts";
import { DomainError } from "../contract/errors.ts";
import { SETTING_NAMES, SETTINGS, type SettingName, type Settings } from "../contract/webhooks/settings.ts";
import { count, type Db, rows, run, transactionWithRetry } from "../lib/pg/index.ts";
import { takeLock } from "../schema/index.ts";
import {
  type BreakerSettings,
  closeBreakerForUser,
  forgetGone,
  holdsBack,
  removeBreakers,
  setBreaker,
} from "./breakers.ts";
import { customerIsPaused, isCustomerPaused } from "./customer-pause.ts";
import { raiseRevisions } from "./revisions.ts";
import { lockShared } from "./shared-webhooks.ts";
import {
  findWebhook,
  lockWebhook,
  type NewWebhook,
  RECEIVER_COLUMNS,
  type WebhookRow,
  webhookColumns,
} from "./webhooks.ts";

/** The changes of one update. A property that is left out keeps its value. */
export interface WebhookChanges extends Partial<Settings> {
  /** The URL as given, and as normalized by TargetRules.normalise. */
  address?: Pick<NewWebhook, "url" | "targetUrl" | "customer">;
  paused?: boolean;
  /** Null removes the filter. */
  filter?: string | null;
  /** Null removes the circuit breaker. */
  breaker?: BreakerSettings | null;
}

/** A webhook before and after a change, which may have changed nothing. */
export interface ChangedWebhook {
  before: WebhookRow;
  webhook: WebhookRow;
}

/**
 * Changes a live webhook. Its endpoint's other webhooks change with it; the filter alone is its own. Workers learn within a
 * second that they are paused, resumed or have another target. Values equal to the current ones change nothing, not even the
 * revision.
 *
 * @param options.revision the revision that the webhook must have; any when left out
 * @param options.isShared whether the caller changes the endpoint's other webhooks too. Then they are locked
 * @returns the webhook, and the others of its endpoint; null if the scope has no live webhook with this id
 * @throws DomainError ABORTED if the webhook has another revision; ALREADY_EXISTS if another one has its event type and
 *   the new target; PERMISSION_DENIED if others of its endpoint would change, and are outside the scope
 */
export function updateWebhook(
  db: Db,
  scope: Scope,
  id: bigint,
  changes: WebhookChanges,
  { revision, isShared = false }: { revision?: bigint; isShared?: boolean } = {},
): Promise<(ChangedWebhook & { others: ChangedWebhook[] }) | null> {
  return transactionWithRetry(db, async (trx) => {
    // Serialized with registrations, and taken first as they do: both could take the same address.
    if (changes.address) await takeLock(trx, "registration");
    const { filter: _, ...shared } = changes;
    const [first, ...rest] =
      isShared || Object.keys(shared).length > 0
        ? await lockShared(trx, scope, id)
        : [await lockWebhook(trx, scope, id)].filter((webhook) => webhook !== null);
    if (!first) return null;
    expectRevision(first, revision);
    const asked = await change(trx, first, changes);
    const others: Changed[] = [];
    for (const each of rest) others.push(await change(trx, each, shared));
    const told = [asked, ...others].filter(({ isTold }) => isTold);
    await raiseRevisions(
      trx,
      told.map(({ webhook }) => webhook),
    );
    const limitOf = ({ rateLimit, ratePeriodSeconds }: WebhookRow) => [rateLimit, ratePeriodSeconds];
    if (first.endpointId && !isDeepStrictEqual(limitOf(asked.webhook), limitOf(first)))
      await startBucket(trx, first.endpointId, asked.webhook);
    return { ...asked, others };
  });
}

/** A changed limit starts without tokens, as a new one; a slow one with one, because the first might otherwise take a day. */
const firstTokens = ({ rateLimit, ratePeriodSeconds }: Settings) =>
  rateLimit !== null && rateLimit < (ratePeriodSeconds ?? 1) ? 1 : 0;

async function startBucket(trx: Db, endpointId: string, settings: Settings): Promise<void> {
  const bucket = { rate_tokens: firstTokens(settings), rate_at: trx.fn.now() };
  await run(trx, trx("endpoints").where({ id: endpointId }).update(bucket));
}

interface Changed extends ChangedWebhook {
  /** Whether the workers must learn of it. */
  isTold: boolean;
}

/** SQL for whether the rate limit of row `w` changes. */
const NEW_RATE =
  "(w.rate_limit, w.rate_period_seconds) is distinct from (:rateLimit::int, :ratePeriodSeconds::int)";

/** Changes one webhook, which is locked. */
async function change(trx: Db, before: WebhookRow, changes: WebhookChanges): Promise<Changed> {
  const { id } = before;
  const after = changed(before, changes);
  const moves = after.targetUrl !== before.targetUrl;
  if (moves && (await findWebhook(trx, { ...after, customer: before.customer }))) throw addressTaken(after);
  // A user who pauses or resumes the webhook takes over from its breaker.
  const takesOver = holdsBack(before.breaker) && (changes.paused !== undefined || changes.breaker === null);
  if (moves) await forgetGone(trx, id);
  // A filter that was switched off is switched on by setting the same one again.
  const newFilter =
    after.filter !== before.filter || (changes.filter !== undefined && before.filterStopped !== null);
  const newBreaker = await changeBreaker(trx, before, changes, takesOver);
  const ofPaused = await isCustomerPaused(trx, before.customer);
  if (ofPaused && changes.paused === false) throw customerIsPaused(id);
  // Its user may pause it beside the customer. What its breaker no longer holds back waits for the customer.
  const byCustomer = ofPaused && changes.paused === undefined && (takesOver || before.customerPaused);
  const held =
    byCustomer || (takesOver ? changes.paused === true : holdsBack(before.breaker) || after.paused);
  const [webhook] = await rows<WebhookRow>(
    trx,
    `update webhooks w set ${SETTING_NAMES.map((name) => `${SETTINGS[name].column} = ${given(name)}`).join(", ")}, url = :url::text, target_url = :targetUrl::text,
        paused = case when :held::bool then case when :takesOver::bool then now() else coalesce(w.paused, now()) end end,
        customer_paused = :byCustomer::bool, filter = :filter::text,
        filter_slow = case when not :newFilter::bool then w.filter_slow end,
        filter_stopped = case when not :newFilter::bool then w.filter_stopped end,
        test_delivery = case when (w.paused is not null) = :held::bool and not :takesOver::bool then w.test_delivery end,
        probe_attempts = case when (w.paused is not null) = :held::bool and not :takesOver::bool then w.probe_attempts end,
        rate_tokens = case when ${NEW_RATE} then :firstTokens::float8 else w.rate_tokens end,
        rate_at = case when ${NEW_RATE} then now() else w.rate_at end,
        -- What its receiver asked for does not concern another one.
        ${RECEIVER_COLUMNS.map((column) => `${column} = case when w.target_url = :targetUrl::text then w.${column} end`).join(", ")},
        modified = now(), revision = w.revision + 1
      where w.id = :id::bigint and (:takesOver::bool or :newBreaker::bool or :newFilter::bool
        or (${SETTING_NAMES.map((name) => `w.${SETTINGS[name].column}`).join(", ")}, w.url, w.filter, w.paused is not null, w.customer_paused)
          is distinct from (${SETTING_NAMES.map(given).join(", ")}, :url::text, :filter::text, :held::bool, :byCustomer::bool))
      returning ${webhookColumns("w")}`,
    { id, ...after, held, byCustomer, takesOver, newBreaker, newFilter, firstTokens: firstTokens(after) },
  );
  if (!webhook) return { before, webhook: before, isTold: false };
  if (webhook.url !== before.url) {
    const until = trx.raw("clock_timestamp()");
    await run(trx, trx("webhook_old_urls").insert({ webhook_id: id, until, url: before.url }));
  }
  const isTold = moves || takesOver || newFilter || after.paused !== (before.paused !== null);
  return { before, webhook, isTold };
}

/** @returns whether the settings of the breaker have changed */
async function changeBreaker(
  trx: Db,
  { id, breaker: before, paused: wasPaused }: WebhookRow,
  { breaker, paused }: WebhookChanges,
  takesOver: boolean,
): Promise<boolean> {
  const isNew = breaker !== undefined && !isDeepStrictEqual(breaker, before?.settings ?? null);
  if (isNew && breaker) await setBreaker(trx, id, breaker);
  if (isNew && !breaker) await removeBreakers(trx, [id]);
  else if (before && (takesOver || (wasPaused && paused === false))) await closeBreakerForUser(trx, id);
  return isNew;
}

/** The new value of a setting, in SQL. */
const given = (name: SettingName) => `:${name}::${SETTINGS[name].type}`;

function changed(before: WebhookRow, changes: WebhookChanges) {
  const { address, filter, paused } = changes;
  const settings = SETTING_NAMES.map((name) => [
    name,
    changes[name] === undefined ? before[name] : changes[name],
  ]);
  return {
    ...(Object.fromEntries(settings) as Settings),
    process: before.process,
    url: address?.url ?? before.url,
    targetUrl: address?.targetUrl ?? before.targetUrl,
    filter: filter === undefined ? before.filter : filter,
    paused: paused ?? before.paused !== null,
  };
}

/**
 * @param webhook is locked by the transaction
 * @param given the revision that the caller has read; any when undefined
 * @throws DomainError ABORTED if the webhook has another revision
 */
export function expectRevision({ id, revision }: WebhookRow, given: bigint | undefined): void {
  if (given === undefined || given === revision) return;
  throw new DomainError(
    "REVISION_CHANGED",
    `webhook ${id} has revision ${revision}, not ${given}: it was changed meanwhile; get the webhook and decide again`,
    { metadata: { revision: String(revision) } },
  );
}

function addressTaken({ process, url }: { process: number; url: string }): DomainError {
  return new DomainError(
    "WEBHOOK_EXISTS",
    `another webhook has the event type ${processName(process)} and the URL ${url}; choose another URL, or delete one of the two webhooks`,
  );
}

/** Forgets URLs that webhooks had until before a time. */
export async function forgetOldUrls(db: Db, before: Date): Promise<void> {
  await count(db, "delete from webhook_old_urls where until < :before", { before });
}
