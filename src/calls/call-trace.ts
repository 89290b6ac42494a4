import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { cleanTraceparent } from "../metrics/index.ts";

/** The trace context of a traced call. */
export const callTrace = createContextKey<string | null>(null);

/** The trace context that a call's events belong to: its span's where calls are traced, else the caller's; or null. */
export function traceparentOfCall(handler: HandlerContext): string | null {
  return handler.values.get(callTrace) ?? cleanTraceparent(handler.requestHeader.get("traceparent"));
}
