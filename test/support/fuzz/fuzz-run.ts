import fc from "fast-check";
import { nearlyRight, right } from "../request-arbitraries.ts";
import { seldomHeaders } from "./fuzz-headers.ts";
import { type FuzzRequest, type Protocol, showRequest } from "./fuzz-request.ts";
import type { FuzzedService } from "./fuzzed-service.ts";
import { rawConnections } from "./raw-connections.ts";
import { rpcRequests, type Served } from "./rpc-requests.ts";
import { type Answer, createSender } from "./senders.ts";
import { type Problem, problemOf } from "./verdicts.ts";

/** Requests that are made up from one seed. */
export const BATCH = 20;
/** Batches that are sent at once. */
const LANES = 3;
/** How long the search for a smaller request that fails may take, in milliseconds. */
const SHRINK_MS = 15_000;
/** Problems of further kinds are not looked into. */
const MAX_PROBLEMS = 12;
/** The interval between reports of the progress, in milliseconds. */
const PROGRESS_MS = 10_000;

/** How much is sent. */
export interface FuzzSize {
  /** Requests in total. */
  requests: number;
  /** Or for how long, in milliseconds. */
  durationMs?: number | undefined;
  /** That of the first batch; each further batch has the next number. */
  seed: number;
  /** Told of the progress, in words. */
  tell?: (line: string) => void;
}

/** What was sent by one protocol, and how it was answered. */
export interface Tally {
  requests: number;
  statuses: Map<string, number>;
  slowestMs: number;
}

/** A problem, with the smallest request that was found to cause it. */
export interface FoundProblem extends Problem {
  times: number;
  /** Makes the batch up again. */
  seed: number;
  request: string;
}

/** What a run found. */
export interface FuzzResult {
  sent: number;
  problems: FoundProblem[];
  tallies: Map<Protocol, Tally>;
  /** Requests that Node's clients refuse to send. */
  unsendable: number;
}

/** Makes requests up and sends them. Never fails: what is wrong is in the result. */
export async function fuzz(
  service: FuzzedService,
  services: Served["services"],
  size: FuzzSize,
): Promise<FuzzResult> {
  const requests = anyRequest(service, services);
  const sender = createSender(service);
  const tallies = new Map<Protocol, Tally>();
  const found = new Map<string, FoundProblem>();
  const started = performance.now();
  let sent = 0;
  let unsendable = 0;
  let nextBatch = 0;
  let toldAt = started;

  const goesOn = () => {
    if (found.size >= MAX_PROBLEMS) return false;
    const { durationMs } = size;
    return durationMs === undefined
      ? nextBatch * BATCH < size.requests
      : performance.now() - started < durationMs;
  };

  async function send(request: FuzzRequest): Promise<[Answer, Problem | undefined]> {
    const answer = await sender.send(request);
    return [answer, problemOf(request, answer)];
  }

  async function smallest(problem: Problem, seed: number, place: number): Promise<FuzzRequest | undefined> {
    const property = fc.asyncProperty(requests, async (request) => {
      const [, again] = await send(request);
      return again?.kind !== problem.kind;
    });
    const { counterexample } = await fc.check(property, {
      seed,
      path: String(place),
      numRuns: 1,
      interruptAfterTimeLimit: SHRINK_MS,
      markInterruptAsFailure: false,
    });
    return counterexample?.[0];
  }

  async function runBatch(seed: number): Promise<void> {
    const batch = fc.sample(requests, { seed, numRuns: BATCH });
    await Promise.all(
      batch.map(async (request, place) => {
        const [answer, problem] = await send(request);
        sent += 1;
        if (answer.outcome === "unsendable") unsendable += 1;
        count(tallies, request, answer);
        if (!problem) return;
        const known = found.get(problem.kind);
        if (known) {
          known.times += 1;
          return;
        }
        const entry = { ...problem, times: 1, seed, request: showRequest(request) };
        found.set(problem.kind, entry);
        const smaller = await smallest(problem, seed, place);
        if (smaller) entry.request = showRequest(smaller);
      }),
    );
  }

  async function lane(): Promise<void> {
    while (goesOn()) {
      const batch = nextBatch;
      nextBatch += 1;
      await runBatch((size.seed + batch) | 0);
      if (performance.now() - toldAt > PROGRESS_MS) {
        toldAt = performance.now();
        const seconds = Math.round((toldAt - started) / 1_000);
        size.tell?.(`${sent} requests in ${seconds} s, ${found.size} kinds of problems`);
      }
    }
  }

  try {
    await Promise.all(Array.from({ length: LANES }, lane));
  } finally {
    sender.close();
  }
  return { sent, problems: [...found.values()], tallies, unsendable };
}

function anyRequest(service: FuzzedService, services: Served["services"]): fc.Arbitrary<FuzzRequest> {
  const { keys, known } = service;
  const admin = keys[0] as string;
  const described = fc.oneof(
    { weight: 4, arbitrary: nearlyRight([admin, undefined, "", "nobody", "a, b", ...keys.slice(1)]) },
    { weight: 1, arbitrary: right(admin) },
  );
  // The gRPC listener serves no REST; with TLS there is one listener for all.
  const over = service.tls
    ? fc.constantFrom("HTTP/1.1" as const, "HTTP/2" as const)
    : fc.constant("HTTP/1.1" as const);
  const rest = fc.tuple(described, seldomHeaders, over).map(
    ([{ method, path, headers, body }, more, version]): FuzzRequest => ({
      protocol: "REST",
      over: version,
      method,
      path,
      headers: { ...headers, ...more },
      body: body === undefined ? undefined : Buffer.from(body),
      unfinished: false,
      rpc: undefined,
    }),
  );
  return fc.oneof(
    { weight: 3, arbitrary: rest },
    { weight: 14, arbitrary: rpcRequests({ services, known, keys }) },
    { weight: 1, arbitrary: rawConnections(admin) },
  );
}

function count(tallies: Map<Protocol, Tally>, { protocol }: FuzzRequest, answer: Answer): void {
  let tally = tallies.get(protocol);
  if (!tally) {
    tally = { requests: 0, statuses: new Map(), slowestMs: 0 };
    tallies.set(protocol, tally);
  }
  tally.requests += 1;
  tally.slowestMs = Math.max(tally.slowestMs, answer.ms);
  const status = statusOf(answer);
  tally.statuses.set(status, (tally.statuses.get(status) ?? 0) + 1);
}

/** How an answer is counted: by the status of gRPC where it has one, else by that of HTTP. */
function statusOf({ outcome, status, headers, trailers }: Answer): string {
  if (outcome !== "answered") return outcome;
  const grpcStatus = trailers["grpc-status"] ?? headers["grpc-status"];
  return grpcStatus === undefined ? String(status || "frames") : `grpc ${grpcStatus}`;
}

/** The run as a table, one line per protocol. */
export function showTallies(tallies: ReadonlyMap<Protocol, Tally>): string {
  const lines = [...tallies].map(([protocol, { requests, statuses, slowestMs }]) => {
    const counts = [...statuses].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
    const list = counts.map(([status, times]) => `${status}: ${times}`).join(", ");
    return `${protocol.padEnd(16)} ${String(requests).padStart(8)}  ${`${Math.round(slowestMs)} ms`.padStart(9)}  ${list}`;
  });
  return ["protocol         requests    slowest  statuses", ...lines.sort()].join("\n");
}
