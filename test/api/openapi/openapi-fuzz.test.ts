import fc from "fast-check";
import { Pool } from "undici";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectDescribed } from "../../support/described-answers.ts";
import { type AnyRequest, nearlyRight, right } from "../../support/request-arbitraries.ts";
import { ONLY, startTestApi, type TestApi } from "../../support/test-api.ts";

/** How many requests are made up, others each time: a few seconds of them. `FUZZ_REQUESTS` makes up more or fewer. */
const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 3_000);
/** That of a failure, to make up the same ones again. */
const SEED = process.env.FUZZ_SEED;
/** Of them at once. */
const BATCH = 20;

let api: TestApi;
let pool: Pool;
beforeAll(async () => {
  api = await startTestApi();
  pool = new Pool(`http://127.0.0.1:${api.httpPort}`, { connections: 8 });
});
afterAll(async () => {
  await pool.close();
  await api.stop();
});

interface Answer {
  status: number;
  text: string;
}

async function send({ method, path, headers, body }: AnyRequest): Promise<Answer> {
  const answer = await pool.request({ method, path, headers, ...(body === undefined ? {} : { body }) });
  const text = await answer.body.text();
  const status = answer.statusCode;
  const header = (name: string) => answer.headers[name.toLowerCase()] as string | undefined;
  expectDescribed({ method, path, status, header, text });
  return { status, text };
}

/** Runs a property on batches of requests; the seed that finds them again is in the message of a failure. */
async function holds(
  requests: fc.Arbitrary<AnyRequest>,
  amount: number,
  check: (request: AnyRequest, answer: Answer) => void,
): Promise<void> {
  let sent = 0;
  const property = fc.asyncProperty(
    fc.array(requests, { minLength: BATCH, maxLength: BATCH }),
    async (batch) => {
      sent += batch.length;
      await Promise.all(batch.map(async (request) => check(request, await send(request))));
    },
  );
  await fc.assert(property, {
    numRuns: Math.ceil(amount / BATCH),
    ...(SEED === undefined ? {} : { seed: Number(SEED) }),
  });
  expect(sent).toBeGreaterThanOrEqual(amount);
}

test("no request gets a 500, nor an answer off its description", async () => {
  const [read, write] = await Promise.all([
    api.key({ permissions: ONLY.read }),
    api.key({ permissions: ONLY.write, allowedProcesses: [1] }),
  ]);
  const keys = [api.adminKey, undefined, "", "nobody", "a, b", read.secret, write.secret];
  const seen = new Map<number, number>();
  await holds(nearlyRight(keys), REQUESTS, (request, { status }) => {
    expect(status, JSON.stringify(request)).not.toBe(500);
    seen.set(status, (seen.get(status) ?? 0) + 1);
  });
  // Made up well: some of each.
  for (const status of [200, 400, 401, 403, 404])
    expect(seen.get(status) ?? 0, `${status}`).toBeGreaterThan(0);
}, 180_000);

test("a request as its description says is done, or is for a webhook that there is not", async () => {
  await holds(right(api.adminKey), REQUESTS / 10, (request, { status, text }) => {
    if (status === 200) return;
    expect(text, JSON.stringify(request)).toContain("there is no webhook ");
  });
});
