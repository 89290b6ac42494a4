import { ConnectError } from "@connectrpc/connect";

/** What a call was refused with; undefined when it went through. */
export function failure(call: Promise<unknown>): Promise<ConnectError | undefined> {
  return call.then(
    () => undefined,
    (error: unknown) => ConnectError.from(error),
  );
}
