import type { RestRequest } from "../../../support/test-api.ts";

/** One corner of the REST API: a request, and what it must be answered. */
export interface Corner {
  /** What is peculiar about it; reads on after the method and the path. */
  name: string;
  method: string;
  /** Below the prefix: `/webhook`, `/webhook/list`. */
  path: string;
  /** `url` is one that no other corner uses; `id` is that of a webhook there is. */
  request?: (given: { url: string; id: bigint; key: string }) => RestRequest;
  /** Sent as bytes, for what a proper HTTP client will not send: the head's lines after the first, then the body. */
  bytes?: (given: { key: string }) => { head: string[]; body?: string };
  status: number;
  /** Part of the one warning of a failure. Undefined: a success. */
  says?: string;
}

/** What a corner's request is made with. */
type Given = Parameters<NonNullable<Corner["request"]>>[0];

/** Makes corners of an operation that are refused with 400 and a warning that holds `says`. */
export function refusedBy(method: string, path: string) {
  return (name: string, request: RestRequest, says: string): Corner => ({
    name,
    method,
    path,
    request: () => request,
    status: 400,
    says,
  });
}

/** Makes corners of an operation that are done, with what `pick` takes of what is given. */
export function takenBy<T>(method: string, path: string, pick: (given: Given) => T) {
  return (name: string, request: (picked: T) => RestRequest): Corner => ({
    name,
    method,
    path,
    request: (given) => request(pick(given)),
    status: 200,
  });
}

/** A JSON body as it is. */
export function jsonText(body: string): RestRequest {
  return { raw: { body, type: "application/json" } };
}

/** The numbers that `process` can have, as messages list them. */
export const MEMBERS =
  "1 (OrderDispatched), 2 (DocumentCreated), 3 (StockLevelChanged), 10001 (WebhookFailing), 10002 (WebhookRecovered), 10003 (WebhookDisabled), 10004 (DeliveryFailed)";
