/** A corner of the REST API: a request, and how it must be answered. */
export interface Corner extends Sent {
  /** What is special about the request. */
  name: string;
  /**
   * The method, and the path below the prefix. Here, in the head and in a body that is text, `{key}` stands for a valid key,
   * `{KEY}` for the same in capitals, `{url}` for a URL that no other corner has, and `{id}` for a webhook's id above 2^53.
   */
  line: string;
  status: number;
  /** Part of the one warning of a failure. Undefined for a success. */
  says?: string | undefined;
}

/** What follows a request's first line. */
export interface Sent {
  /** Lines of the head, beside Host, the length of the body and the key. */
  head?: string[];
  /** The lines with the key. One with `{key}` unless given. */
  keys?: string[];
  /** A text is sent as UTF-8. */
  body?: string | Buffer;
}

/** A body with its content type; none without one. */
export const typed = (type: string | undefined, body: string | Buffer): Sent => ({
  head: type === undefined ? [] : [`Content-Type: ${type}`],
  body,
});
export const json = (body: string | Buffer) => typed("application/json", body);
export const form = (body: string | Buffer) => typed("application/x-www-form-urlencoded", body);

/** Makes corners of one status, from what is special, the first line, the rest, and part of the warning. */
export type Row = [name: string, line: string, sent?: Sent, says?: string | undefined];
export const corners = (status: number, rows: readonly Row[]): Corner[] =>
  rows.map(([name, line, sent, says]) => ({ name, line, ...sent, status, says }));

/**
 * Corners of a parameter that is refused with 400. Texts are sent in the query, in a form and in JSON; other JSON is sent as
 * it is.
 *
 * @param line the method and the path
 * @param others the other parameters, as a query
 * @param rows a value as JSON, and part of the warning
 */
export function refusedValues(
  line: string,
  name: string,
  others: Record<string, string>,
  rows: readonly (readonly [value: string, says: string])[],
): Corner[] {
  const members = Object.entries(others).map(
    ([other, value]) => `${JSON.stringify(other)}:${JSON.stringify(value)}`,
  );
  return rows.flatMap(([value, says]) => {
    const inJson: Row = ["in JSON", line, json(`{${[...members, `"${name}":${value}`].join()}}`)];
    const encoded =
      value.startsWith('"') && new URLSearchParams({ ...others, [name]: JSON.parse(value) }).toString();
    const places: Row[] = encoded
      ? [inJson, ["in a form", line, form(encoded)], ["in the query", `${line}?${encoded}`]]
      : [inJson];
    // Node reads heads of up to 16 KiB.
    const sent = places.filter(([, first]) => first.length < 10_000);
    return corners(
      400,
      sent.map(([place, first, rest = {}]) => [`${name} ${value.slice(0, 50)} ${place}`, first, rest, says]),
    );
  });
}

/** The length of what `{url}` stands for. */
export const URL_LENGTH = 40;

/** The numbers that `process` can have, as messages list them. */
export const MEMBERS =
  "1 (OrderDispatched), 2 (DocumentCreated), 3 (StockLevelChanged), 10001 (WebhookFailing), 10002 (WebhookRecovered), 10003 (WebhookDisabled), 10004 (DeliveryFailed)";
