import fc from "fast-check";
import { type FuzzRequest, type Protocol, showRequest } from "./fuzz-request.ts";
import type { FuzzedService } from "./fuzzed-service.ts";
import { rawConnections } from "./raw-connections.ts";
import { restRequests } from "./rest-requests.ts";
import { rpcRequests, type Served } from "./rpc-requests.ts";
import { type Answer, createSender } from "./senders.ts";
import { type Problem, problemOf } from "./verdicts.ts";

/** Requests that are made up from one seed, and sent at once. */
export const BATCH = 20;
/** Batches that are sent at once. */
const LANES = 3;
/** How long the search for a smaller request that fails may take, in milliseconds. */
const SHRINK_MS = 15_000;
/** Problems of further kinds are not looked into. */
const MAX_PROBLEMS = 12;

/** How much is sent. */
export interface FuzzSize {
  /** Requests in total. */
  requests: number;
  /** Or for how long, in milliseconds. */
  durationMs?: number | undefined;
  /** That of the first batch; each further batch has the next number. */
  seed: number;
}

/** A problem, with the smallest request that was found to cause it. The seed makes its batch up again. */
export interface FoundProblem extends Problem {
  seed: number;
  request: string;
}

/** What a run found. */
export interface FuzzResult {
  sent: number;
  problems: FoundProblem[];
  /** How often each protocol was answered by each status. */
  tallies: Partial<Record<Protocol, Record<string, number>>>;
}

/** Makes requests up and sends them. Never fails: what is wrong is in the result. */
export async function fuzz(
  service: FuzzedService,
  services: Served["services"],
  size: FuzzSize,
): Promise<FuzzResult> {
  const requests = anyRequest(service, services);
  const sender = createSender(service);
  const found = new Map<string, FoundProblem>();
  const tallies: FuzzResult["tallies"] = {};
  const ends = performance.now() + (size.durationMs ?? 0);
  let batches = 0;

  const hasMore = () =>
    found.size < MAX_PROBLEMS &&
    (size.durationMs === undefined ? batches * BATCH < size.requests : performance.now() < ends);

  async function smallest({ kind }: Problem, seed: number, place: number): Promise<FuzzRequest | undefined> {
    const property = fc.asyncProperty(
      requests,
      async (request) => problemOf(request, await sender.send(request))?.kind !== kind,
    );
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
    const send = async (request: FuzzRequest, place: number) => {
      const answer = await sender.send(request);
      const [counts, status] = [tallies[request.protocol] ?? {}, statusOf(answer)];
      tallies[request.protocol] = { ...counts, [status]: (counts[status] ?? 0) + 1 };
      const problem = problemOf(request, answer);
      if (!problem || found.has(problem.kind)) return;
      const entry = { ...problem, seed, request: showRequest(request) };
      found.set(problem.kind, entry);
      const smaller = await smallest(problem, seed, place);
      if (smaller) entry.request = showRequest(smaller);
    };
    await Promise.all(fc.sample(requests, { seed, numRuns: BATCH }).map(send));
  }

  async function lane(): Promise<void> {
    while (hasMore()) await runBatch((size.seed + batches++) | 0);
  }

  try {
    await Promise.all(Array.from({ length: LANES }, lane));
  } finally {
    sender.close();
  }
  return { sent: batches * BATCH, problems: [...found.values()], tallies };
}

function anyRequest(service: FuzzedService, services: Served["services"]): fc.Arbitrary<FuzzRequest> {
  const { keys, known } = service;
  // The gRPC listener serves no REST; with TLS there is one listener for all.
  const rest = restRequests(keys, service.tls ? ["HTTP/1.1", "HTTP/2"] : ["HTTP/1.1"]);
  return fc.oneof(
    { weight: 3, arbitrary: rest },
    { weight: 14, arbitrary: rpcRequests({ services, known, keys }) },
    { weight: 1, arbitrary: rawConnections(keys[0] as string) },
  );
}

/** How an answer is counted: by the status of gRPC where it has one, else by that of HTTP. */
function statusOf({ outcome, status, headers, trailers }: Answer): string {
  if (outcome !== "answered") return outcome;
  const grpcStatus = trailers["grpc-status"] ?? headers["grpc-status"];
  return grpcStatus === undefined ? String(status || "frames") : `grpc ${grpcStatus}`;
}
