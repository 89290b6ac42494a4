import type { Attributes, Histogram, Meter, UpDownCounter } from "@opentelemetry/api";
import type { BufferedMetricUpdate, MetricsBuffer } from "@temporalio/worker";
import { POST_SECONDS } from "./instruments.ts";

/**
 * The interval at which the buffer is emptied, in milliseconds. The buffer holds many times what Temporal's SDK
 * measures in it.
 */
const DRAIN_MS = 500;
/** The task queue of a process has a random name, which would make new series at each start. */
const OWN_TASK_QUEUE = /^worker-[0-9a-f-]{36}$/;
/** Labels that tell nothing, or are not bounded. */
const DROPPED = new Set(["service_name", "namespace", "workflow_id", "run_id"]);

/** Records what Temporal's SDK measures, under its own names (`temporal_…`). @returns ends it */
export function drainTemporalMetrics(meter: Meter, buffer: MetricsBuffer): () => void {
  const recorders = new Map<string, (value: number, attributes: Attributes) => void>();

  function recorderOf({ metric }: BufferedMetricUpdate): (value: number, attributes: Attributes) => void {
    let record = recorders.get(metric.name);
    if (!record) {
      record = createRecorder(meter, metric);
      recorders.set(metric.name, record);
    }
    return record;
  }

  const timer = setInterval(() => {
    for (const update of buffer.retrieveUpdates())
      recorderOf(update)(update.value, bounded(update.attributes));
  }, DRAIN_MS);
  timer.unref();
  return () => clearInterval(timer);
}

function bounded(tags: BufferedMetricUpdate["attributes"]): Attributes {
  const attributes: Attributes = {};
  for (const [name, value] of Object.entries(tags)) {
    if (DROPPED.has(name)) continue;
    attributes[name] = typeof value === "string" && OWN_TASK_QUEUE.test(value) ? "worker" : value;
  }
  return attributes;
}

function createRecorder(
  meter: Meter,
  { name, kind, unit = "", description = "" }: BufferedMetricUpdate["metric"],
): (value: number, attributes: Attributes) => void {
  const options = { unit: unit === "duration" ? "s" : unit, description };
  switch (kind) {
    case "counter":
    case "up-down-counter": {
      const counter: UpDownCounter =
        kind === "counter" ? meter.createCounter(name, options) : meter.createUpDownCounter(name, options);
      return (value, attributes) => counter.add(value, attributes);
    }
    case "gauge": {
      const gauge = meter.createGauge(name, options);
      return (value, attributes) => gauge.record(value, attributes);
    }
    default: {
      // The default bounds of OpenTelemetry are for milliseconds.
      const advice = options.unit === "s" ? { explicitBucketBoundaries: POST_SECONDS } : {};
      const histogram: Histogram = meter.createHistogram(name, { ...options, advice });
      return (value, attributes) => histogram.record(value, attributes);
    }
  }
}
