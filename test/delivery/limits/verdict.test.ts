import { expect, test } from "vitest";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import type { FailureOf } from "../../../src/delivery/request/outcome.ts";
import { answerOf, faultOf } from "../../support/simulation/receivers.ts";

test.each([
  [200, "success"],
  [204, "success"],
  [301, "failure"],
  [404, "failure"],
  [429, "failure"],
  [500, "failure"],
] as const)(
  "a response with status %i, however late, is a success of the host and a %s of the webhook",
  (status, webhook) => {
    expect(verdictOf(answerOf(status, 59_000).outcome)).toEqual({ webhook, host: "success" });
  },
);

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
  expect(verdictOf(faultOf(failure, 1).outcome)).toEqual(verdict);
});
