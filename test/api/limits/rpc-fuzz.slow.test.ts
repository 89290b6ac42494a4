import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { OWN_SERVICES } from "../../../src/api/routes.ts";
import { ALL_SERVICES } from "../../../src/app/services.ts";
import { type FuzzResult, fuzz } from "../../support/fuzz/fuzz-run.ts";
import { type FuzzedService, startFuzzedService } from "../../support/fuzz/fuzzed-service.ts";

/** Whether `npm run fuzz` runs this. */
const FULL_SIZE = process.env.MODE === "fuzz";
/** Requests that are made up: `FUZZ_REQUESTS`, or as many as `FUZZ_SECONDS` allow. */
const REQUESTS = Number(process.env.FUZZ_REQUESTS ?? (FULL_SIZE ? 100_000 : 2_000));
const SECONDS = process.env.FUZZ_SECONDS;
/** Other requests each time; that of a failure makes up the same ones again. */
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** The share of the requests that precede the first measurement of memory: at least 1,000, because code is compiled until then, but at most half. */
const warmUpOf = (requests: number) => Math.min(0.5, Math.max(0.1, 1_000 / requests));
/** How long the service has nothing to do before memory is measured, in milliseconds. */
const SETTLE_MS = 3_000;

const MIB = 1024 * 1024;
/**
 * How much more memory the process may hold after the run than after the warm-up, in bytes: objects of the thread that answers, which shows
 * what is kept of requests, and all memory, of which other threads and buffers leave some 30 MiB unused.
 */
const MAX_GROWTH = { heap: 16 * MIB, rss: 100 * MIB };
/** How long the event loop may work without a turn, in milliseconds. Waiting for a busy machine does not count. */
const MAX_STALL_MS = 250;

const SERVED = [...ALL_SERVICES.map(({ service }) => service), ...OWN_SERVICES];

const say = FULL_SIZE ? console.log : () => {};

/** Sends a share of the requests, and fails unless all are answered well. */
async function run(service: FuzzedService, share: number, seed: number): Promise<FuzzResult> {
  const durationMs = SECONDS === undefined ? undefined : Number(SECONDS) * 1_000 * share;
  const result = await fuzz(service, SERVED, { requests: REQUESTS * share, durationMs, seed });
  const told = result.problems.map(
    ({ kind, seed, detail, request }) =>
      `${kind} (FUZZ_SEED=${seed} FUZZ_REQUESTS=20 npm run fuzz)\n${detail}\n${request}`,
  );
  const complaints = service.complaints.map((line) => `the service's output: ${line}`);
  expect([...told, ...complaints].join("\n\n"), `seed ${SEED}`).toBe("");
  return result;
}

/** Fails unless requests are made up well: some succeed, by every protocol. */
function expectSuccesses({ sent, tallies }: FuzzResult): void {
  if (sent < 1_000) return;
  for (const protocol of ["REST", "Connect JSON", "Connect binary", "Connect GET"] as const)
    expect(tallies[protocol]).toHaveProperty("200");
  expect(tallies.gRPC).toHaveProperty("grpc 0");
}

describe.each([
  ["on two ports", false, 0.8],
  ["on one port with TLS", true, 0.2],
])("%s", (name, withTls, share) => {
  test("every request is answered, none as an error of the service, and the log tells of none", async () => {
    const service = await startFuzzedService(withTls);
    onTestFinished(() => service.end());
    say(`${name}: FUZZ_SEED=${SEED}`);
    const warmUp = warmUpOf(REQUESTS * share);
    await run(service, share * warmUp, SEED);
    if (FULL_SIZE) await delay(SETTLE_MS);
    const before = await service.vitals();
    const result = await run(service, share * (1 - warmUp), SEED + 2 ** 20);
    const { workMs } = await service.vitals();
    for (const [protocol, counts] of Object.entries(result.tallies)) say(protocol, JSON.stringify(counts));
    expectSuccesses(result);
    if (!FULL_SIZE) return;
    await delay(SETTLE_MS);
    const after = await service.vitals();
    const growth = { heap: after.heap - before.heap, rss: after.rss - before.rss };
    say(
      `the event loop worked for ${workMs} ms at most without a turn; memory grew by ${growth.rss / MIB} MiB, objects by ${growth.heap / MIB} MiB`,
    );
    for (const kind of ["heap", "rss"] as const)
      expect(growth[kind], `growth of ${kind} in bytes`).toBeLessThan(MAX_GROWTH[kind]);
    expect(workMs, "longest stall in milliseconds").toBeLessThan(MAX_STALL_MS);
  });
});
