import { expect, test } from "vitest";
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

/** Tokens whose requests the test answers, at times that the test sets. */
function tokens() {
  const asked: PromiseWithResolvers<AccessToken>[] = [];
  const time = { now: 0 };
  const cache = new AccessTokens(
    () => {
      const answer = Promise.withResolvers<AccessToken>();
      asked.push(answer);
      return answer.promise;
    },
    () => time.now,
  );
  return {
    asked,
    time,
    cache,
    /** Fetches a first token. */
    async with(value: string, lifetimeMs: number) {
      const first = cache.get(CLIENT);
      asked[0]?.resolve({ value, lifetimeMs });
      expect(await first).toBe(value);
    },
  };
}

test("a token is fetched once for all that wait for it, and then at hand", async () => {
  const { cache, asked } = tokens();
  const waiting = Array.from({ length: 100 }, () => cache.get(CLIENT));
  expect(asked).toHaveLength(1);
  asked[0]?.resolve({ value: "t1", lifetimeMs: 3_600_000 });
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(["t1"]));
  expect(cache.get(CLIENT)).toBe("t1");
  expect(asked).toHaveLength(1);
});

test("clients that differ in anything have tokens of their own", () => {
  const { cache, asked } = tokens();
  const others: Partial<OAuth2Client>[] = [
    { tokenUrl: "https://login.example/other" },
    { clientId: "other" },
    { clientSecret: "other" },
    { scope: "other" },
    { audience: "other" },
    { secretInBody: true },
  ];
  for (const other of [{}, ...others]) void cache.get({ ...CLIENT, ...other });
  expect(asked).toHaveLength(7);
  void cache.get({ ...CLIENT });
  expect(asked).toHaveLength(7);
});

test("a token is renewed a minute before its end while it stays in use, and not used right before its end", async () => {
  const { cache, asked, time, with: fetched } = tokens();
  await fetched("t1", 3_600_000);
  time.now = 3_539_999;
  expect(cache.get(CLIENT)).toBe("t1");
  expect(asked).toHaveLength(1);
  time.now = 3_540_000;
  expect([cache.get(CLIENT), cache.get(CLIENT)]).toEqual(["t1", "t1"]);
  expect(asked).toHaveLength(2);
  // The renewal hangs: the old token serves until 15 s before its end.
  time.now = 3_584_999;
  expect(cache.get(CLIENT)).toBe("t1");
  time.now = 3_585_000;
  const next = cache.get(CLIENT);
  expect(asked).toHaveLength(2);
  asked[1]?.resolve({ value: "t2", lifetimeMs: 3_600_000 });
  expect(await next).toBe("t2");
  expect(cache.get(CLIENT)).toBe("t2");
});

test("a failed renewal leaves the token in use, and is repeated after five seconds", async () => {
  const { cache, asked, time, with: fetched } = tokens();
  await fetched("t1", 3_600_000);
  time.now = 3_540_000;
  expect(cache.get(CLIENT)).toBe("t1");
  asked[1]?.reject(new TokenError("down"));
  await asked[1]?.promise.catch(() => {});
  await new Promise(setImmediate);
  time.now += 4_999;
  expect(cache.get(CLIENT)).toBe("t1");
  expect(asked).toHaveLength(2);
  time.now += 1;
  expect(cache.get(CLIENT)).toBe("t1");
  expect(asked).toHaveLength(3);
});

test("without a token, all that wait fail with the one error, as do others for five seconds", async () => {
  const { cache, asked, time } = tokens();
  const waiting = [cache.get(CLIENT), cache.get(CLIENT)];
  const settled = Promise.allSettled(waiting);
  asked[0]?.reject(new TokenError("down"));
  for (const each of await settled) expect(each).toMatchObject({ reason: { message: "down" } });
  time.now = 4_999;
  await expect(cache.get(CLIENT)).rejects.toThrow("down");
  expect(asked).toHaveLength(1);
  time.now = 5_000;
  const next = cache.get(CLIENT);
  asked[1]?.resolve({ value: "t1", lifetimeMs: 60_000 });
  expect(await next).toBe("t1");
});

test("a token that a receiver refuses is replaced once; one that is not in use any more is not", async () => {
  const { cache, asked, time, with: fetched } = tokens();
  await fetched("t1", 3_600_000);
  cache.refused(CLIENT, "t1");
  const next = cache.get(CLIENT);
  cache.refused(CLIENT, "t1");
  asked[1]?.resolve({ value: "t2", lifetimeMs: 3_600_000 });
  expect(await next).toBe("t2");
  // Late answers to requests with the old one.
  cache.refused(CLIENT, "t1");
  expect(cache.get(CLIENT)).toBe("t2");
  // The receiver refuses everything: no fetch per attempt.
  time.now = 29_999;
  cache.refused(CLIENT, "t2");
  expect(cache.get(CLIENT)).toBe("t2");
  time.now = 30_000;
  cache.refused(CLIENT, "t2");
  expect(cache.get(CLIENT)).toBeInstanceOf(Promise);
  expect(asked).toHaveLength(3);
});

test("a token whose lifetime is zero is used for a moment, and not fetched for each attempt", async () => {
  const { cache, asked, time, with: fetched } = tokens();
  await fetched("t1", 0);
  time.now = 700;
  expect(cache.get(CLIENT)).toBe("t1");
  expect(asked).toHaveLength(1);
});

test("the cache is bounded: the oldest of more than a thousand clients is forgotten", async () => {
  const { cache, asked, with: fetched } = tokens();
  await fetched("t1", 3_600_000);
  for (let n = 1; n < 1_000; n += 1) void cache.get({ ...CLIENT, clientId: `${n}` });
  expect(cache.get(CLIENT)).toBe("t1");
  void cache.get({ ...CLIENT, clientId: "1000" });
  expect(cache.get(CLIENT)).toBeInstanceOf(Promise);
  expect(asked).toHaveLength(1_002);
});
