import {
  type Attributes,
  type Context,
  context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import type { Sampler } from "@opentelemetry/sdk-trace";
import type { Logger } from "pino";
import { describeProcess, milliseconds, reportOtlpErrors } from "./metrics.ts";
import { formatTraceparent, isUnsampled, parseTraceparent } from "./traceparent.ts";

/** The traces of a process. */
export interface Tracing {
  /** Undefined where traces are not exported. */
  tracer: Tracer | undefined;
  /** Whether a span is recorded only if its parent was, where it has one. True unless OTEL_TRACES_SAMPLER says otherwise. */
  followsParent: boolean;
  /** Sends the last spans. */
  close(): Promise<void>;
}

/** Defaults of OpenTelemetry's specification for the export of spans. */
const BATCH_DEFAULTS = { delayMs: 5_000, queue: 2_048, batch: 512 };

/**
 * Starts tracing, as OpenTelemetry's variables say. Where nothing is exported, OpenTelemetry's SDK is not even loaded.
 *
 * @param options.process `main`, or the place of a delivery process
 */
export async function startTracing(options: {
  otlp: boolean;
  process: string;
  log: Logger;
}): Promise<Tracing> {
  if (!options.otlp) return { tracer: undefined, followsParent: true, close: async () => {} };
  const sdk = await import("@opentelemetry/sdk-trace");
  const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-proto");
  const { AsyncLocalStorageContextManager } = await import("@opentelemetry/context-async-hooks");
  reportOtlpErrors(options.log);
  // The active span of a call gives its log lines their trace id.
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const processor = new sdk.BatchSpanProcessor({
    exporter: new OTLPTraceExporter(),
    scheduledDelayMillis: milliseconds("OTEL_BSP_SCHEDULE_DELAY", BATCH_DEFAULTS.delayMs),
    maxQueueSize: milliseconds("OTEL_BSP_MAX_QUEUE_SIZE", BATCH_DEFAULTS.queue),
    maxExportBatchSize: milliseconds("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH_DEFAULTS.batch),
  });
  const { sampler, followsParent } = samplerOf(sdk, process.env);
  const provider = new sdk.TracerProvider({
    resource: await describeProcess(options.process),
    sampler,
    spanProcessors: [processor],
  });
  return {
    tracer: provider.getTracer("webhook-service"),
    followsParent,
    close: () => provider.shutdown().catch(() => {}),
  };
}

/** The sampler that OTEL_TRACES_SAMPLER names; as the specification says, an unknown name counts as not set. */
function samplerOf(
  sdk: typeof import("@opentelemetry/sdk-trace"),
  environment: NodeJS.ProcessEnv,
): { sampler: Sampler; followsParent: boolean } {
  // Compose files write an empty value for "not set".
  const ratio = Number(environment.OTEL_TRACES_SAMPLER_ARG || 1);
  const known = /^(parentbased_)?(always_on|always_off|traceidratio)$/.exec(
    environment.OTEL_TRACES_SAMPLER ?? "",
  );
  const [, isParentBased, name] = known ?? ["", "parentbased_", "always_on"];
  const root = {
    always_on: () => new sdk.AlwaysOnSampler(),
    always_off: () => new sdk.AlwaysOffSampler(),
    traceidratio: () => new sdk.TraceIdRatioBasedSampler(Number.isFinite(ratio) ? ratio : 1),
  }[name as "always_on"]();
  return isParentBased
    ? { sampler: new sdk.ParentBasedSampler({ root }), followsParent: true }
    : { sampler: root, followsParent: false };
}

/** The context with a remote parent; the root context without one. */
function contextOf(traceparent: string | null | undefined): Context {
  const parent = parseTraceparent(traceparent);
  return parent ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT;
}

/** The traceparent with which others continue a span. */
export function traceparentOf(span: Span): string {
  return formatTraceparent(span.spanContext());
}

/** Ends the span as failed. @param error the error's code, never its text, which may hold what a caller sent */
function fail(span: Span, error: string): void {
  span.setAttribute("error.type", error);
  span.setStatus({ code: SpanStatusCode.ERROR });
}

/** Starts the span of a call of this service. */
export function startCall(tracer: Tracer, method: string, traceparent: string | null): Span {
  const attributes = { "rpc.system.name": "grpc", "rpc.method": method };
  return tracer.startSpan(method, { kind: SpanKind.SERVER, attributes }, contextOf(traceparent));
}

/** Runs work as part of a span: its log lines carry the trace id. */
export function within<T>(span: Span, work: () => T): T {
  return context.with(trace.setSpan(context.active(), span), work);
}

/** Ends the span of a call. @param error the name of the status unless it is OK */
export function endCall(span: Span, error: string | undefined): void {
  span.setAttribute("rpc.response.status_code", error ?? "OK");
  if (error !== undefined) fail(span, error);
  span.end();
}

/**
 * Runs a statement for several traces in a separate span, which links to all of them; for one trace the span is part of
 * it. The caller's work is not slowed where nothing is traced.
 */
export async function inBatch<T>(
  tracer: Tracer | undefined,
  name: string,
  traceparents: readonly (string | null)[],
  work: () => Promise<T>,
): Promise<T> {
  if (!tracer) return work();
  const traces = [...new Set(traceparents)].filter((each) => each !== null);
  const isOne = traces.length === 1;
  const attributes: Attributes = { "webhook.batch.size": traceparents.length };
  const span = tracer.startSpan(
    name,
    {
      attributes,
      links: (isOne ? [] : traces)
        .map(parseTraceparent)
        .filter((linked) => linked !== undefined)
        .map((linked) => ({ context: linked })),
    },
    isOne ? contextOf(traces[0]) : ROOT_CONTEXT,
  );
  try {
    return await work();
  } catch (error) {
    fail(span, (error as NodeJS.ErrnoException).code ?? "unknown");
    throw error;
  } finally {
    span.end();
  }
}

/**
 * Starts the span of an attempt; undefined where none would be recorded because its event's was not. Of most events none is,
 * and making a span that is not recorded takes a tenth of a delivery's processor time.
 *
 * @param attempt.origin scheme and host of the receiver; its path may be confidential
 */
export function startAttempt(
  { tracer, followsParent }: Pick<Tracing, "tracer" | "followsParent">,
  attempt: { deliveryId: string; number: number; origin: string; traceparent: string | null },
): Span | undefined {
  if (!tracer || (followsParent && isUnsampled(attempt.traceparent))) return undefined;
  const { hostname, port } = new URL(attempt.origin);
  const attributes = {
    "http.request.method": "POST",
    "server.address": hostname,
    "server.port": Number(port || 443),
    "webhook.delivery.id": attempt.deliveryId,
    "http.request.resend_count": attempt.number - 1,
  };
  return tracer.startSpan("POST", { kind: SpanKind.CLIENT, attributes }, contextOf(attempt.traceparent));
}

/** Ends the span of an attempt. @param failure what failed where there is no status */
export function endAttempt(
  span: Span,
  { status, delivered, failure }: { status: number | null; delivered: boolean; failure: string | null },
): void {
  if (status !== null) span.setAttribute("http.response.status_code", status);
  if (!delivered) fail(span, status === null ? (failure ?? "ours").replace(" ", "_") : String(status));
  span.end();
}
