import type { RetryGroup, UndeliveredList } from "../../../workflows/dispatch-input.ts";
import type { HeldBack } from "../../breakers/index.ts";
import { inUtc } from "../../contract/time-in-words.ts";
import type { PassResult } from "../../delivery/index.ts";
import { ATTEMPTS_PER_ROUND, type FailingWebhook } from "../../queue/index.ts";

const number = new Intl.NumberFormat("en-US");

/** The remaining deliveries of a pass, for operators: `3 of 12 undelivered, last: 503 from shop.example`. */
export function summarisePass({ status, failed, sent, lastFailure, complete }: PassResult): string {
  const last = lastFailure ? `, last: ${lastFailure}` : "";
  const undelivered = status.open + failed;
  const all = number.format(Math.max(sent, undelivered));
  if (status.open === 0)
    return `${number.format(failed)} of ${all} failed after ${ATTEMPTS_PER_ROUND} attempts${last}`;
  const stopped = complete ? "" : " (the worker was stopped amid the pass; the rest follows at once)";
  return `${number.format(undelivered)} of ${all} undelivered${last}${stopped}`;
}

/** The maximum size of a retry group's summary as JSON, in bytes. Temporal allows 400, with its encoding and the workflow's own words. */
const MAX_SUMMARY_BYTES = 345;

function shortened(summary: string): string {
  let start = summary;
  while (Buffer.byteLength(JSON.stringify(start)) > MAX_SUMMARY_BYTES) start = start.slice(0, -10);
  return start === summary ? summary : `${start}…`;
}

/** The maximum size of a search attribute, in bytes. Temporal terminates a run that sets more than 2,048. */
const MAX_ATTRIBUTE_BYTES = 2_000;
/** The encoding overhead of each value of a list, in bytes. */
const VALUE_OVERHEAD = 3;

/** The values that fit into one search attribute. */
function fitting(values: Iterable<string>): string[] {
  let bytes = 2;
  return [...values].filter((value) => {
    bytes += Buffer.byteLength(value) + VALUE_OVERHEAD;
    return bytes <= MAX_ATTRIBUTE_BYTES;
  });
}

/** The maximum number of webhooks held back by circuit breakers that a run names. */
export const MAX_HELD_BACK = 10;

/**
 * Webhooks that circuit breakers hold back, a line each:
 * `webhook 12, shop.example: open since 2026-11-22 10:00:00 UTC (10 attempts …), next probe 10:05:00 UTC`.
 */
export function summariseHeldBack(held: readonly HeldBack[]): string[] {
  const lines = held
    .slice(0, MAX_HELD_BACK)
    .map(({ webhookId, targetUrl, state, since, reason, nextProbe }) => {
      const probe = nextProbe ? `, next probe ${inUtc(nextProbe)}` : "";
      return `webhook ${webhookId}, ${new URL(targetUrl).host}: ${state} since ${inUtc(since)} (${reason})${probe}`;
    });
  const more = (held[0]?.total ?? 0) - lines.length;
  return more > 0 ? [...lines, `and ${number.format(more)} more`] : lines;
}

/** Failing webhooks as retry groups for the workflow, with the ids and hosts that fit into the search attributes. */
export function summariseGroups(
  failing: readonly FailingWebhook[],
): Pick<UndeliveredList, "groups" | "webhookIds" | "hosts"> {
  const groups = Map.groupBy(failing, ({ group }) => group);
  const hosts = new Set(failing.map(({ host }) => host));
  return {
    groups: [...groups].map(([group, members]) => toGroup(group, members)),
    webhookIds: fitting(failing.map(({ webhookId }) => String(webhookId))),
    hosts: fitting(hosts),
  };
}

function toGroup(group: number, members: readonly FailingWebhook[]): RetryGroup {
  const deliveries = members.reduce((sum, member) => sum + member.deliveries, 0);
  const hosts = [...new Set(members.map(({ host }) => host))];
  const [only] = members.length === 1 ? members : [];
  const summary = [
    ...(only ? [`webhook ${only.webhookId}`] : []),
    ...(hosts.length === 1 ? hosts : []),
    ...(only ? [] : [`${number.format(members.length)} webhooks`]),
    `${number.format(deliveries)} ${deliveries === 1 ? "delivery" : "deliveries"}`,
    ...(only?.isProbe ? ["probe"] : []),
    ...members.flatMap(({ lastError }) => (lastError ? [`last: ${lastError}`] : [])),
  ].join(", ");
  return {
    group,
    summary: shortened(summary),
    delayMs: Math.min(...members.map(({ delayMs }) => delayMs)),
  };
}
