import fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import { showRequest } from "../../support/fuzz/fuzz-request.ts";
import { restRequests } from "../../support/fuzz/rest-requests.ts";
import { createSender } from "../../support/fuzz/senders.ts";
import { problemOf } from "../../support/fuzz/verdicts.ts";
import { ONLY, useApi } from "../../support/test-api.ts";

/** Other requests each time; that of a failure makes up the same ones again. */
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));

const api = await useApi();
const read = await api.key({ permissions: ONLY.read });
const write = await api.key({ permissions: ONLY.write, allowedProcesses: [1] });
const sender = createSender({ httpPort: api.httpPort, grpcPort: api.grpcPort as number, tls: false });
afterAll(() => sender.close());

test("requests that are nearly right are answered as described, and none as an error of the service", async () => {
  const seen = new Set<number>();
  const requests = restRequests([api.adminKey, read.secret, write.secret, "nobody"], ["HTTP/1.1"]);
  const batches = fc.array(requests, { minLength: 20, maxLength: 20 });
  const property = fc.asyncProperty(batches, async (batch) => {
    await Promise.all(
      batch.map(async (request) => {
        const answer = await sender.send(request);
        seen.add(answer.status);
        expect(problemOf(request, answer), `FUZZ_SEED=${SEED} ${showRequest(request)}`).toBeUndefined();
      }),
    );
  });
  await fc.assert(property, { numRuns: 20, seed: SEED });
  // Made up well: some of each.
  expect([...seen]).toEqual(expect.arrayContaining([200, 400, 401, 404]));
});
