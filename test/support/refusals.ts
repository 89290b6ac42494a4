import type { Code, ConnectError } from "@connectrpc/connect";
import { expect } from "vitest";
import { failure } from "./failure.ts";
import { reasonOf } from "./grpc-calls.ts";

/**
 * Expects that a call is refused; answers the error.
 *
 * @param text a part of the message, or what it matches
 * @param reason the reason of the error's google.rpc.ErrorInfo; any unless given
 */
export async function expectRefused(
  call: Promise<unknown>,
  code: Code,
  text: string | RegExp = "",
  reason?: string,
): Promise<ConnectError> {
  const error = await failure(call);
  expect([
    error?.code,
    error?.rawMessage,
    reason === undefined || !error ? undefined : reasonOf(error),
  ]).toEqual([
    code,
    typeof text === "string" ? expect.stringContaining(text) : expect.stringMatching(text),
    reason,
  ]);
  return error as ConnectError;
}
