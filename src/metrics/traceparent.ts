import type { SpanContext } from "@opentelemetry/api";

/** The `traceparent` header of W3C Trace Context: version, trace id, span id and flags. Later versions may append more. */
const TRACEPARENT =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;
/** The maximum length of a traceparent, in characters. */
const MAX_CHARACTERS = 128;

/** Reads a traceparent; undefined if it is missing or not valid. */
export function parseTraceparent(header: string | null | undefined): SpanContext | undefined {
  if (!header || header.length > MAX_CHARACTERS) return undefined;
  const [, traceId, spanId, flags = ""] = TRACEPARENT.exec(header) ?? [];
  if (traceId === undefined || spanId === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}

/** Writes a traceparent of version 00. */
export function formatTraceparent({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, "0")}`;
}

/** Whether a traceparent of version 00 says that its span is not recorded. */
export function isUnsampled(traceparent: string | null): boolean {
  return traceparent !== null && (Number.parseInt(traceparent.slice(-2), 16) & 1) === 0;
}

/** A traceparent as version 00, without what later versions append; null if it is missing or not valid. */
export function cleanTraceparent(header: string | null): string | null {
  const parsed = parseTraceparent(header);
  return parsed ? formatTraceparent(parsed) : null;
}
