import fc from "fast-check";
import { Pool } from "undici";
import { afterAll, expect, test } from "vitest";
import { expectDescribed } from "../../support/described-answers.ts";
import { type AnyRequest, nearlyRight, right } from "../../support/request-arbitraries.ts";
import { ONLY, useApi } from "../../support/test-api.ts";

/** How many requests are made up, others each time. `FUZZ_REQUESTS` makes up more or fewer. */
const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? 600);
/** That of a failure, to make up the same ones again. */
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** Of them at once. */
const BATCH = 20;

const api = await useApi();
const pool = new Pool(`http://127.0.0.1:${api.httpPort}`, { connections: 8 });
afterAll(() => pool.close());

/** Sends batches of requests, and holds every answer against the description. The seed of a failure is in its message. */
async function holds(
  requests: fc.Arbitrary<AnyRequest>,
  amount: number,
  check: (request: AnyRequest, status: number, text: string) => void,
): Promise<void> {
  const batches = fc.array(requests, { minLength: BATCH, maxLength: BATCH });
  const property = fc.asyncProperty(batches, async (batch) => {
    await Promise.all(
      batch.map(async (request) => {
        const { method, path, headers, body = null } = request;
        const answer = await pool.request({ method, path, headers, body });
        const text = await answer.body.text();
        const header = (name: string) => answer.headers[name.toLowerCase()] as string | undefined;
        expectDescribed({ method, path, status: answer.statusCode, header, text });
        check(request, answer.statusCode, text);
      }),
    );
  });
  await fc.assert(property, { numRuns: Math.ceil(amount / BATCH), seed: SEED });
}

test("no request gets a 500, nor an answer off its description", async () => {
  const read = await api.key({ permissions: ONLY.read });
  const write = await api.key({ permissions: ONLY.write, allowedProcesses: [1] });
  const keys = [api.adminKey, undefined, "", "nobody", "a, b", read.secret, write.secret];
  const seen = new Set<number>();
  await holds(nearlyRight(keys), REQUESTS, (request, status) => {
    expect(status, JSON.stringify(request)).not.toBe(500);
    seen.add(status);
  });
  // Made up well: some of each.
  expect([...seen]).toEqual(expect.arrayContaining([200, 400, 401, 404]));
});

test("a request as its description says is done, or is for a webhook that there is not", async () => {
  await holds(right(api.adminKey), REQUESTS / 10, (request, status, text) => {
    if (status !== 200) expect(text, JSON.stringify(request)).toContain("there is no webhook ");
  });
});
