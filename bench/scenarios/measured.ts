import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Scenario } from "../parts/scenario.ts";
import { measureDrain } from "./drain.ts";

/** The part of the events whose trace is recorded. */
const TRACED = 0.01;

const count = { full: 100_000, small: 20_000 };
/** Measuring may cost 3 %. */
const targets = { "of drain": { atLeast: 0.97 } };
const comparisons = [
  { detail: "of drain", unit: "ratio", with: "drain", value: (own: number, bare: number) => own / bare },
];

/** `drain`, whose repeats alternate with it, with metrics that are read as by Prometheus. */
export const drainMetrics: Scenario = {
  name: "drain-metrics",
  what: "drain with METRICS_PORT",
  count,
  targets,
  comparisons,
  measure: (bench, deliveries) => measureDrain(bench, { count: deliveries, settings: { METRICS_PORT: "0" } }),
};

/** `drain` with metrics and the traces of one event in a hundred, sent to a collector that drops them. */
export const drainTraces: Scenario = {
  name: "drain-traces",
  what: "drain with METRICS_PORT and OTLP traces of one event in a hundred",
  count,
  targets,
  comparisons,
  async measure(bench, deliveries) {
    let exports = 0;
    const collector = createServer((request, response) => {
      exports += 1;
      request.resume().on("end", () => response.end());
    }).listen(0, "127.0.0.1");
    await once(collector, "listening");
    try {
      const settings = {
        METRICS_PORT: "0",
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}/v1/traces`,
        OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG: String(TRACED),
      };
      const measured = await measureDrain(bench, { count: deliveries, settings, traced: TRACED });
      if (exports === 0) throw new Error("no traces were exported");
      return measured;
    } finally {
      collector.closeAllConnections();
      collector.close();
    }
  },
};
