import { expect, test } from "vitest";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import type { FailureOf, Outcome } from "../../../src/delivery/request/outcome.ts";

const ATTEMPT: Outcome = {
  delivered: false,
  started: new Date(0),
  durationMs: 1,
  status: null,
  error: null,
  responseStart: null,
  responseHeaders: null,
  retryAfterMs: null,
  failure: null,
};

test.each([
  [200, "success"],
  [204, "success"],
  [301, "failure"],
  [404, "failure"],
  [429, "failure"],
  [500, "failure"],
  [503, "failure"],
] as const)(
  "a response with status %i is a success of the host and a %s of the webhook",
  (status, webhook) => {
    const delivered = status < 300;
    expect(verdictOf({ ...ATTEMPT, status, delivered })).toEqual({ webhook, host: "success" });
  },
);

test("a response after a long time is no failure", () => {
  expect(verdictOf({ ...ATTEMPT, status: 200, delivered: true, durationMs: 59_000 })).toEqual({
    webhook: "success",
    host: "success",
  });
});

test.each<[FailureOf, ReturnType<typeof verdictOf>]>([
  ["webhook", { webhook: "failure", host: "none" }],
  ["webhook timeout", { webhook: "timeout", host: "none" }],
  ["host", { webhook: "none", host: "failure" }],
  ["host timeout", { webhook: "none", host: "timeout" }],
  ["tls", { webhook: "failure", host: "none" }],
  ["token endpoint", { webhook: "none", host: "none" }],
  ["proxy", { webhook: "none", host: "none" }],
  ["ours", { webhook: "none", host: "none" }],
])("an attempt without a response that is the fault of: %s, is charged to it alone", (failure, verdict) => {
  expect(verdictOf({ ...ATTEMPT, failure })).toEqual(verdict);
});
