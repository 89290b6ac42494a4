import type { Reply } from "../../demo/receiver.ts";
import {
  answers,
  byteASecond,
  GZIP_BOMB,
  gzipBomb,
  headersOnly,
  recovers,
  resets,
  resetsAmid,
} from "./misbehaviour.ts";

/** What must be recorded of a delivery to such a receiver. */
export interface ReceiverCase {
  title: string;
  /** 200 unless given. */
  reply?: Reply;
  /** Which certificate it shows; a right one unless given. */
  certificate?: "other host" | "expired" | "unknown authority";
  /** The name in its URL; localhost unless given. */
  host?: string;
  state: "delivered" | "failed";
  /** Status and error of each recorded attempt. */
  attempts: [number | null, RegExp | null][];
  /** What is kept of the first response. */
  responseStart: string | RegExp | null;
  /** Requests it gets. */
  requests: number;
  /** The least wait before the second attempt, in milliseconds. */
  waitMs?: number;
}

type Outcome = Pick<ReceiverCase, "state" | "attempts" | "responseStart" | "requests">;
type Attempt = ReceiverCase["attempts"][number];
const four = (attempt: Attempt): Attempt[] => [attempt, attempt, attempt, attempt];

/** Delivered by the first request. */
function accepted(status: number, responseStart: string | RegExp | null): Outcome {
  return { state: "delivered", attempts: [[status, null]], responseStart, requests: 1 };
}

/** Failed after four requests that all ended alike. */
function rejected(
  status: number | null,
  error: RegExp | null,
  responseStart: string | RegExp | null,
): Outcome {
  return { state: "failed", attempts: four([status, error]), responseStart, requests: 4 };
}

/** Failed after four attempts of which no request reached the receiver. */
function unreached(error: RegExp): Outcome {
  return { state: "failed", attempts: four([null, error]), responseStart: null, requests: 0 };
}

const RESET = /^connection (reset|closed)/;
const LATE = /^no response within 3 s$/;
/** Without what the name resolves to. */
const REFUSED = /^address refused: \w+\.example does not resolve to a public address(?!.*127)/;

/** Receivers that need nothing but a reply, a certificate or a name. */
export const RECEIVER_CASES: ReceiverCase[] = [
  { title: "answers 201", reply: () => 201, ...accepted(201, "answered 201") },
  { title: "answers 204", reply: () => 204, ...accepted(204, null) },
  {
    title: "answers 302",
    reply: () => 302,
    ...rejected(302, /^redirects are not followed$/, "answered 302"),
  },
  { title: "answers 410", reply: () => 410, ...rejected(410, null, "answered 410") },
  { title: "answers 503", reply: () => 503, ...rejected(503, null, "answered 503") },
  {
    title: "answers 429 with Retry-After in seconds",
    reply: recovers(429, () => ({ "retry-after": "3" })),
    state: "delivered",
    attempts: [
      [429, /^Retry-After: 3 s$/],
      [200, null],
    ],
    responseStart: "answered 429",
    requests: 2,
    waitMs: 3_000,
  },
  {
    title: "answers 429 with Retry-After as a date",
    // A date has whole seconds, so it asks for between five and six; and the answer may be long on its way.
    reply: recovers(429, () => ({ "retry-after": new Date(Date.now() + 6_000).toUTCString() })),
    state: "delivered",
    attempts: [
      [429, /^Retry-After: [56] s$/],
      [200, null],
    ],
    responseStart: "answered 429",
    requests: 2,
    waitMs: 2_900,
  },
  { title: "answers 200 and resets amid the response", reply: resetsAmid(200), ...accepted(200, "half") },
  {
    title: "answers 503 and resets amid the response",
    reply: resetsAmid(503),
    ...rejected(503, null, "half"),
  },
  { title: "resets the connection without a response", reply: resets, ...rejected(null, RESET, null) },
  { title: "never answers", reply: () => undefined, ...rejected(null, LATE, null) },
  { title: "sends headers and then nothing", reply: headersOnly, ...accepted(200, null) },
  { title: "sends one byte a second", reply: byteASecond, ...accepted(200, /^x+$/) },
  {
    title: "sends a gzip bomb",
    reply: gzipBomb,
    // As it came: unpacked it would be nothing but zeros, shown as replacement characters.
    ...accepted(200, GZIP_BOMB.subarray(0, 1_024).toString("utf8").replaceAll("\0", "\uFFFD")),
  },
  {
    title: "redirects to itself",
    reply: (request, response) => answers(308, { location: request.path })(request, response),
    ...rejected(308, /^redirects are not followed$/, "answered 308"),
  },
  {
    title: "shows a certificate for another host",
    certificate: "other host",
    ...unreached(/certificate is for another host/),
  },
  { title: "shows an expired certificate", certificate: "expired", ...unreached(/certificate has expired/) },
  {
    title: "shows a certificate of an unknown authority",
    certificate: "unknown authority",
    ...unreached(/certificate/),
  },
  {
    title: "has a name that does not resolve",
    host: "no-such-host.invalid",
    ...unreached(/does not resolve|could not be looked up/),
  },
  { title: "has a name that resolves to a private address", host: "private.example", ...unreached(REFUSED) },
  {
    title: "has a name that changes between two look-ups",
    host: "rebinding.example",
    // Closed, so that the second attempt needs a connection and looks the name up again.
    reply: answers(503, { connection: "close" }),
    state: "failed",
    attempts: [
      [503, null],
      [null, REFUSED],
      [null, REFUSED],
      [null, REFUSED],
    ],
    responseStart: "answered 503",
    requests: 1,
  },
];
