import { expect, onTestFinished, test, vi } from "vitest";
import type { OAuth2Client } from "../../../src/contract/target-rules.ts";
import { AccessTokens } from "../../../src/delivery/oauth2/access-tokens.ts";
import { type AccessToken, TokenError } from "../../../src/delivery/oauth2/token-request.ts";

const CLIENT: OAuth2Client = {
  tokenUrl: "https://login.example/token",
  clientId: "shop",
  clientSecret: "secret",
  scope: null,
  audience: null,
  secretInBody: false,
};

const HOUR_MS = 3_600_000;

/** Tokens whose requests the test answers, at times that the test sets. */
function tokens() {
  const asked: PromiseWithResolvers<AccessToken>[] = [];
  const time = { now: 0 };
  const fetch = () => {
    const answer = Promise.withResolvers<AccessToken>();
    asked.push(answer);
    return answer.promise;
  };
  const clock = vi.spyOn(performance, "now").mockImplementation(() => time.now);
  onTestFinished(() => clock.mockRestore());
  const cache = new AccessTokens(fetch);
  return {
    asked,
    cache,
    /** The token at a time. */
    at(now: number) {
      time.now = now;
      return cache.get(CLIENT);
    },
    answer: (value: string, lifetimeMs = HOUR_MS) => asked.at(-1)?.resolve({ value, lifetimeMs }),
    async fail() {
      asked.at(-1)?.reject(new TokenError("down"));
      await new Promise(setImmediate);
    },
  };
}

test("a token is fetched once for all that wait for it, and then at hand", async () => {
  const { at, asked, answer } = tokens();
  const waiting = Array.from({ length: 100 }, () => at(0));
  answer("t1");
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(["t1"]));
  expect([at(0), asked.length]).toEqual(["t1", 1]);
});

test("clients that differ in any setting have separate tokens", () => {
  const { cache, asked } = tokens();
  const others: Partial<OAuth2Client>[] = [
    { tokenUrl: "https://login.example/other" },
    { clientId: "other" },
    { clientSecret: "other" },
    { scope: "other" },
    { audience: "other" },
    { secretInBody: true },
  ];
  for (const other of [{}, ...others, {}]) void cache.get({ ...CLIENT, ...other });
  expect(asked).toHaveLength(7);
});

test("a token is renewed a minute before its end while it stays in use, and not used right before its end", async () => {
  const { at, asked, answer } = tokens();
  const first = at(0);
  answer("t1");
  await first;
  expect([at(3_539_999), asked.length]).toEqual(["t1", 1]);
  expect([at(3_540_000), at(3_540_000), asked.length]).toEqual(["t1", "t1", 2]);
  // The renewal hangs: the old token serves until 15 s before its end.
  expect(at(3_584_999)).toBe("t1");
  const next = at(3_585_000);
  answer("t2");
  expect([await next, at(3_585_000), asked.length]).toEqual(["t2", "t2", 2]);
});

test("a fetch that fails is repeated after five seconds: meanwhile a token stays in use, and without one all fail with the one error", async () => {
  const { at, asked, answer, fail } = tokens();
  const waiting = Promise.allSettled([at(0), at(0)]);
  await fail();
  for (const each of await waiting) expect(each).toMatchObject({ reason: { message: "down" } });
  await expect(at(4_999)).rejects.toThrow("down");
  expect(asked).toHaveLength(1);
  const next = at(5_000);
  answer("t1");
  expect(await next).toBe("t1");
  const renewAt = 5_000 + HOUR_MS - 60_000;
  expect(at(renewAt)).toBe("t1");
  await fail();
  expect([at(renewAt + 4_999), asked.length]).toEqual(["t1", 3]);
  expect([at(renewAt + 5_000), asked.length]).toEqual(["t1", 4]);
});

test("a token that a receiver refuses is replaced once; one that is not in use any more is not", async () => {
  const { at, cache, asked, answer } = tokens();
  const first = at(0);
  answer("t1");
  await first;
  cache.refused(CLIENT, "t1");
  const next = at(0);
  cache.refused(CLIENT, "t1");
  answer("t2");
  expect(await next).toBe("t2");
  // Late answers to requests with the old one.
  cache.refused(CLIENT, "t1");
  expect(at(29_999)).toBe("t2");
  // The receiver refuses everything: no fetch per attempt.
  cache.refused(CLIENT, "t2");
  expect(at(30_000)).toBe("t2");
  cache.refused(CLIENT, "t2");
  expect(at(30_000)).toBeInstanceOf(Promise);
  expect(asked).toHaveLength(3);
});

test("a token whose lifetime is zero is used for a moment, and of more than a thousand clients the one used longest ago is forgotten", async () => {
  const { at, cache, asked, answer } = tokens();
  const first = at(0);
  answer("t1", 0);
  await first;
  const getOthers = () => {
    for (let n = 1; n < 1_000; n += 1) void cache.get({ ...CLIENT, clientId: `${n}` });
  };
  getOthers();
  expect(at(700)).toBe("t1");
  getOthers();
  void cache.get({ ...CLIENT, clientId: "1000" });
  expect(at(700)).toBeInstanceOf(Promise);
  expect(asked).toHaveLength(1_002);
});
