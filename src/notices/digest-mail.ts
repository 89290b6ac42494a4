import { type DigestWebhook, MAX_LISTED, type NoticeDigest } from "./notice-digest.ts";

/** An e-mail as plain text. */
export interface Mail {
  subject: string;
  text: string;
}

/** The maximum length of a text that others have chosen, such as a name or an error, in characters. */
const MAX_TEXT = 200;

/**
 * The e-mail of a digest; undefined if nothing has changed since the latest one. Names hosts instead of URLs, which may
 * contain secrets.
 */
export function digestMail(digest: NoticeDigest): Mail | undefined {
  const { failing, disabled, filterStopped, recovered, failed, from, until } = digest;
  const newlyFailing = failing.filter(({ isNew }) => isNew);
  const newlyDisabled = disabled.filter(({ isNew }) => isNew);
  const newlyStopped = filterStopped.filter(({ isNew }) => isNew);
  const deliveries = failed.reduce((sum, each) => sum + each.deliveries, 0);
  const news = [
    counted(newlyFailing.length, "webhook failing", "webhooks failing"),
    counted(newlyDisabled.length, "webhook disabled", "webhooks disabled"),
    counted(newlyStopped.length, "filter switched off", "filters switched off"),
    counted(recovered.length, "webhook recovered", "webhooks recovered"),
    counted(deliveries, "delivery failed", "deliveries failed"),
  ].filter((text) => text !== undefined);
  if (news.length === 0) return undefined;
  const failingLine = (each: (typeof failing)[number]) =>
    `${nameOf(each)}: since ${inUtc(each.since)}${each.lastError === null ? "" : `; last error: ${plain(each.lastError)}`}`;
  const stoppedLine = (each: DigestWebhook & { since: Date }) =>
    `${nameOf(each)}: since ${inUtc(each.since)}`;
  const sections = [
    section("Failing now", newlyFailing, failingLine),
    section(
      "Disabled by their circuit breaker; nothing is sent until a user resumes them",
      newlyDisabled,
      (each) => `${nameOf(each)}: since ${inUtc(each.since)}; ${plain(each.reason)}`,
    ),
    section(
      "Filters switched off because they take too long; all events are sent until a user sets the filter again",
      newlyStopped,
      stoppedLine,
    ),
    section("Recovered", recovered, nameOf),
    section(
      `Failed deliveries from ${inUtc(from)} to ${inUtc(until)}`,
      failed,
      (each) => `${nameOf(each)}: ${each.deliveries}`,
    ),
    section(
      "Still failing",
      failing.filter(({ isNew }) => !isNew),
      failingLine,
    ),
    section(
      "Still disabled",
      disabled.filter(({ isNew }) => !isNew),
      stoppedLine,
    ),
    section(
      "Filters that are still switched off",
      filterStopped.filter(({ isNew }) => !isNew),
      stoppedLine,
    ),
  ].filter((text) => text !== undefined);
  return { subject: `Webhook service: ${news.join(", ")}`, text: `${sections.join("\n\n")}\n` };
}

function counted(n: number, one: string, many: string): string | undefined {
  if (n === 0) return undefined;
  return `${n} ${n === 1 ? one : many}`;
}

function section<Item>(
  title: string,
  items: readonly Item[],
  line: (item: Item) => string,
): string | undefined {
  if (items.length === 0) return undefined;
  const lines = items.slice(0, MAX_LISTED).map((item) => `- ${line(item)}`);
  if (items.length > MAX_LISTED) lines.push(`- and ${items.length - MAX_LISTED} more`);
  return `${title}:\n${lines.join("\n")}`;
}

function nameOf({ id, name, targetUrl, customer, appName }: DigestWebhook): string {
  const named = name === null ? "" : ` "${plain(name)}"`;
  const app = appName === null ? "" : ` of ${plain(appName)}`;
  const of = customer === null ? "" : ` of customer ${plain(customer)}`;
  return `webhook ${id}${named}${app}${of}, ${new URL(targetUrl).host}`;
}

/** `2026-11-21 09:30 UTC`. */
function inUtc(date: Date): string {
  return `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** A text that others have chosen, shortened and on one line. */
function plain(text: string): string {
  const line = text.replaceAll(/[\p{C}\p{Z}]+/gu, " ").trim();
  return line.length > MAX_TEXT ? `${line.slice(0, MAX_TEXT - 1)}…` : line;
}
