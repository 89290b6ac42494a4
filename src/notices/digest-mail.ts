import { type DigestWebhook, type LastingState, MAX_LISTED, type NoticeDigest } from "./notice-digest.ts";

/** An e-mail as plain text. */
export interface Mail {
  subject: string;
  text: string;
}

/** The maximum length of a text that others have chosen, such as a name or an error, in characters. */
const MAX_TEXT = 200;

/** The lists of webhooks with a state that lasts: how the subject counts new ones, and the titles of new and earlier ones. */
const LASTING = [
  {
    list: "failing",
    counts: ["webhook failing", "webhooks failing"],
    begun: "Failing now",
    lasts: "Still failing",
  },
  {
    list: "disabled",
    counts: ["webhook disabled", "webhooks disabled"],
    begun: "Disabled by their circuit breaker; nothing is sent until a user resumes them",
    lasts: "Still disabled",
  },
  {
    list: "filterStopped",
    counts: ["filter switched off", "filters switched off"],
    begun:
      "Filters switched off because they take too long; all events are sent until a user sets the filter again",
    lasts: "Filters that are still switched off",
  },
] as const;

/**
 * The e-mail of a digest; undefined if nothing has changed since the latest one. Names hosts instead of URLs, which may
 * contain secrets.
 */
export function digestMail(digest: NoticeDigest): Mail | undefined {
  const { recovered, failed, from, until } = digest;
  const deliveries = failed.reduce((sum, each) => sum + each.deliveries, 0);
  const begun = (list: (typeof LASTING)[number]["list"]) => digest[list].filter(({ isNew }) => isNew);
  const news = [
    ...LASTING.map(({ list, counts: [one, many] }) => counted(begun(list).length, one, many)),
    counted(recovered.length, "webhook recovered", "webhooks recovered"),
    counted(deliveries, "delivery failed", "deliveries failed"),
  ].filter((text) => text !== undefined);
  if (news.length === 0) return undefined;
  const period = `from ${inUtc(from)} to ${inUtc(until)}`;
  const sections = [
    ...LASTING.map((each) => section(each.begun, begun(each.list), lastingLine)),
    section("Recovered", recovered, nameOf),
    section(`Failed deliveries ${period}`, failed, (each) => `${nameOf(each)}: ${each.deliveries}`),
    ...LASTING.map(({ list, lasts }) =>
      section(
        lasts,
        digest[list].filter(({ isNew }) => !isNew),
        lastingLine,
      ),
    ),
  ].filter((text) => text !== undefined);
  return { subject: `Webhook service: ${news.join(", ")}`, text: `${sections.join("\n\n")}\n` };
}

/** The reason is part of the first digest only. */
function lastingLine({ since, isNew, lastError, reason, ...webhook }: LastingState): string {
  const error = lastError ? `; last error: ${plain(lastError)}` : "";
  const why = reason && isNew ? `; ${plain(reason)}` : "";
  return `${nameOf(webhook)}: since ${inUtc(since)}${error}${why}`;
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
