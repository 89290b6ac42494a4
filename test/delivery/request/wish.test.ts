import { expect, test } from "vitest";
import { wishOf } from "../../../src/delivery/request/wish.ts";

const refusal = { holdMs: 0, isRefusal: true, statedRate: null, remaining: null };
const hint = { ...refusal, isRefusal: false };
const HOUR_MS = 3_600_000;

test.each<[number, Record<string, string | string[]>, number | null, object | undefined]>([
  // Refusals.
  [429, {}, 10_000, { ...refusal, holdMs: 10_000 }],
  [503, {}, 10_000, { ...refusal, holdMs: 10_000 }],
  [429, {}, null, refusal],
  [503, {}, null, undefined],
  [500, {}, 10_000, undefined],
  [301, {}, 10_000, undefined],
  [200, {}, 10_000, undefined],
  [429, { ratelimit: '"a";r=0;t=7' }, null, { ...refusal, holdMs: 7_000, remaining: 0 }],
  [429, { ratelimit: '"a";r=0;t=7' }, 9_000, { ...refusal, holdMs: 9_000, remaining: 0 }],
  [
    429,
    { ratelimit: '"a";r=3;t=7', "ratelimit-policy": '"a";q=5;w=1' },
    null,
    { ...refusal, statedRate: 5, remaining: 3 },
  ],
  // Hints of successes.
  [200, { ratelimit: '"a";r=50;t=30' }, null, { ...hint, remaining: 50 }],
  [
    204,
    { ratelimit: '"a";r=0;t=30', "ratelimit-policy": '"a";q=100;w=60, "day";q=864;w=86400' },
    null,
    { ...hint, holdMs: 30_000, statedRate: 0.01, remaining: 0 },
  ],
  [
    200,
    { ratelimit: '"a, r=9";r=0;t=3, "b";r=0;t=5, "c";r=8;t=100' },
    null,
    { ...hint, holdMs: 5_000, remaining: 0 },
  ],
  [200, { ratelimit: ['"a";r=1;t=3', '"b";r=0;t=999999'] }, null, { ...hint, holdMs: HOUR_MS, remaining: 0 }],
  [200, { ratelimit: '"a";r=0' }, null, { ...hint, remaining: 0 }],
  // Quotas of bytes.
  [
    200,
    {
      ratelimit: '"a";r=9',
      "ratelimit-policy": '"a";q=65535;qu="content-bytes";w=1, "b";q=10;qu="requests";w=2',
    },
    null,
    { ...hint, statedRate: 5, remaining: 9 },
  ],
  // Earlier drafts.
  [
    200,
    { ratelimit: "limit=100, remaining=0, reset=5", "ratelimit-policy": "100;w=10" },
    null,
    { ...hint, holdMs: 5_000, statedRate: 10, remaining: 0 },
  ],
  [
    200,
    { "ratelimit-limit": "10, 10;w=1", "ratelimit-remaining": "0", "ratelimit-reset": "1" },
    null,
    { ...hint, holdMs: 1_000, statedRate: 10, remaining: 0 },
  ],
  // Values that say nothing.
  [200, { ratelimit: "" }, null, undefined],
  [200, { ratelimit: '"a";r=-1;t=5' }, null, undefined],
  [200, { ratelimit: "soon", "ratelimit-policy": ";;,=" }, null, undefined],
  [200, { "ratelimit-reset": "5" }, null, undefined],
  [429, { "ratelimit-policy": '"a";q=0;w=5' }, null, refusal],
  [429, { "ratelimit-policy": '"a";q=5;w=0' }, null, refusal],
])("status %i with %j and Retry-After of %s ms asks for %j", (status, headers, retryAfterMs, expected) => {
  expect(wishOf(status, headers, retryAfterMs)).toEqual(expected);
});
