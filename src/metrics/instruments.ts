import type { Attributes, Counter, Histogram, Meter, MetricOptions } from "@opentelemetry/api";
import { CAUSES } from "../contract/stats/bottlenecks.ts";
import { timeOfId } from "../schema/index.ts";

/** Upper bounds of the classes of requests' durations, in seconds: those of OpenTelemetry's conventions for HTTP. */
const REQUEST_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
/** The same for POSTs, which may take as long as DELIVERY_TIMEOUT allows, and for what Temporal's SDK measures. */
export const POST_SECONDS = [...REQUEST_SECONDS, 30, 60, 300];
/** The same for statements: those of the conventions for databases. */
const STATEMENT_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];
/** The same for the time from publishing to delivery: within a second, within the minute's dispatch, by a retry. */
const LATENCY_SECONDS = [
  0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 10_800, 86_400,
];

/** The instruments of an API. */
export type ApiInstruments = ReturnType<typeof createApiInstruments>;

export function createApiInstruments(meter: Meter) {
  return {
    httpDuration: seconds(
      meter,
      "http.server.request.duration",
      "Duration of HTTP requests, of Connect and gRPC-Web calls too.",
      REQUEST_SECONDS,
    ),
    rpcDuration: seconds(
      meter,
      "rpc.server.call.duration",
      "Duration of calls of the services, over REST, Connect, gRPC-Web and gRPC.",
      REQUEST_SECONDS,
    ),
    published: counter(meter, "webhook.events.published", [{}], {
      unit: "{event}",
      description: "Events stored; an event published again under its idempotency key is not counted.",
    }),
    refusals: meter.createCounter("webhook.api.refusals", {
      unit: "{refusal}",
      description: "Refused calls, and refused events of streams and batches, by the reason of the error.",
    }),
  };
}

/** The methods that the conventions name; any other is `_OTHER`, since a client of HTTP/2 may send any text. */
const HTTP_METHODS = new Set([
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "DELETE",
  "CONNECT",
  "OPTIONS",
  "TRACE",
  "PATCH",
]);

/** Attributes of an HTTP request that was answered. @param route undefined where the path is unknown */
export function httpAttributes(method: string, route: string | undefined, status: number): Attributes {
  return {
    "http.request.method": HTTP_METHODS.has(method) ? method : "_OTHER",
    "http.response.status_code": status,
    ...(route === undefined ? {} : { "http.route": route }),
    ...(status >= 500 ? { "error.type": String(status) } : {}),
  };
}

/** The reasons of failed deliveries. */
const FAILURE_REASONS = ["attempts", "interrupted", "queue_full", "expired"] as const;
export type FailureReason = (typeof FAILURE_REASONS)[number];

/** The instruments of a process that delivers. */
export type DeliveryInstruments = ReturnType<typeof createDeliveryInstruments>;

export function createDeliveryInstruments(meter: Meter) {
  return {
    requestDuration: seconds(
      meter,
      "http.client.request.duration",
      "Duration of POSTs to receivers, connection and response included.",
      POST_SECONDS,
    ),
    latency: seconds(
      meter,
      "webhook.delivery.latency",
      "Time from the publishing of an event to the recorded 2xx of a receiver, retries included.",
      LATENCY_SECONDS,
    ),
    attempts: counter(meter, "webhook.delivery.attempts", [{ outcome: "delivered", attempt: "1" }], {
      unit: "{attempt}",
      description: "Recorded attempts, by the state of the delivery and the number of the attempt.",
    }),
    failed: counter(
      meter,
      "webhook.deliveries.failed",
      FAILURE_REASONS.map((reason) => ({ reason })),
      {
        unit: "{delivery}",
        description: "Deliveries that ended as failed, by the reason.",
      },
    ),
    inFlight: meter.createObservableUpDownCounter("webhook.delivery.in_flight", {
      unit: "{request}",
      description: "Deliveries that are being sent or wait for a connection.",
    }),
    bottleneck: counter(
      meter,
      "webhook.delivery.bottleneck",
      CAUSES.map((cause) => ({ cause })),
      { unit: "s", description: "Time in which deliveries waited for a part of the service, by the cause." },
    ),
    leasesExpired: counter(meter, "webhook.leases.expired", [{ holder: "worker" }, { holder: "run" }], {
      unit: "{lease}",
      description: "Leases of workers and runs that ran out: their deliveries were given back.",
    }),
    breakerChanges: counter(
      meter,
      "webhook.circuit_breaker.changes",
      [{ state: "open" }, { state: "closed" }, { state: "disabled" }],
      {
        unit: "{change}",
        description: "Changes of circuit breakers, by the new state.",
      },
    ),
    slowFilters: counter(meter, "webhook.filters.slow", [{}], {
      unit: "{evaluation}",
      description: "Evaluations of filters that took longer than FILTER_TIMEOUT; the events were sent.",
    }),
  };
}

/** Attempts with a higher number, which sending again leads to, are counted together. */
const MAX_ATTEMPT_NUMBER = 8;

/**
 * Counts the results that one statement recorded.
 *
 * @param states the new states by delivery; results without one were not recorded
 */
export function countAttempts(
  { attempts, failed, latency }: DeliveryInstruments,
  results: readonly { deliveryId: string; token: { attempts: number }; started: Date; durationMs: number }[],
  states: ReadonlyMap<string, string>,
): void {
  const counts = new Map<string, { outcome: string; number: number; n: number }>();
  for (const { deliveryId, token, started, durationMs } of results) {
    const outcome = states.get(deliveryId);
    if (outcome === undefined) continue;
    const number = Math.min(token.attempts + 1, MAX_ATTEMPT_NUMBER);
    const key = `${outcome}${number}`;
    const known = counts.get(key);
    if (known) known.n += 1;
    else counts.set(key, { outcome, number, n: 1 });
    if (outcome !== "delivered") continue;
    const ms = started.getTime() + durationMs - timeOfId(deliveryId).getTime();
    // The clock of the database, which made the id, may be ahead of this machine's.
    latency.record(Math.max(0, ms) / 1_000);
  }
  for (const { outcome, number, n } of counts.values()) {
    attempts.add(n, { outcome, attempt: number === MAX_ATTEMPT_NUMBER ? `${number}+` : String(number) });
    if (outcome === "failed") countFailed(failed, n, "attempts");
  }
}

/** Counts deliveries that ended as failed. */
export function countFailed(failed: Counter, deliveries: number, reason: FailureReason): void {
  if (deliveries > 0) failed.add(deliveries, { reason });
}

/** Statuses of the standard; the hundred of any other counts instead, since receivers may answer any. */
const STATUSES = new Set([
  ...[200, 201, 202, 203, 204, 205, 206, 300, 301, 302, 303, 304, 307, 308],
  ...[
    400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 418, 421, 422, 423, 424,
  ],
  ...[425, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 521, 522, 523, 524],
]);

/** Records the duration of a POST. @param failure what failed where there is no status */
export function recordRequest(
  { requestDuration }: DeliveryInstruments,
  { status, durationMs, failure }: { status: number | null; durationMs: number; failure: string | null },
): void {
  requestDuration.record(durationMs / 1_000, requestAttributes(status, failure));
}

function requestAttributes(status: number | null, failure: string | null): Attributes {
  if (status === null)
    return { "http.request.method": "POST", "error.type": (failure ?? "ours").replace(" ", "_") };
  const known = STATUSES.has(status) ? status : Math.floor(status / 100) * 100;
  return {
    "http.request.method": "POST",
    "http.response.status_code": known,
    ...(known >= 400 ? { "error.type": String(known) } : {}),
  };
}

/** The instrument of statements. */
export function createOperationDuration(meter: Meter): Histogram {
  return seconds(
    meter,
    "db.client.operation.duration",
    "Duration of statements, the wait for a connection of the pool included.",
    STATEMENT_SECONDS,
  );
}

/** A counter whose series are there from the start, as 0: Prometheus does not see the first increase of a new series. */
function counter(meter: Meter, name: string, series: readonly Attributes[], options: MetricOptions): Counter {
  const made = meter.createCounter(name, options);
  for (const attributes of series) made.add(0, attributes);
  return made;
}

function seconds(meter: Meter, name: string, description: string, bounds: number[]): Histogram {
  return meter.createHistogram(name, {
    unit: "s",
    description,
    advice: { explicitBucketBoundaries: bounds },
  });
}
