import { Code, ConnectError } from "@connectrpc/connect";

/**
 * Returns the work's result, or rejects with the signal's reason if it aborts first. The work continues without being
 * awaited.
 *
 * @param late called with the error if the work fails later
 * @throws ConnectError the signal's reason, or CANCELLED for other reasons
 */
export function orAborted<T>(
  work: Promise<T>,
  signal: AbortSignal,
  late: (error: unknown) => void = () => {},
): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(abortError(signal));
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    work.then(
      (result) => {
        signal.removeEventListener("abort", abort);
        resolve(result);
      },
      (error: unknown) => {
        signal.removeEventListener("abort", abort);
        if (signal.aborted) late(error);
        reject(error);
      },
    );
  });
}

/** Yields messages until the signal aborts. Throws and calls `late` as `orAborted` does. */
export async function* untilAborted<T>(
  messages: AsyncIterable<T>,
  signal: AbortSignal,
  late: (error: unknown) => void = () => {},
): AsyncIterable<T> {
  const iterator = messages[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { done, value } = await orAborted(iterator.next(), signal, late);
      if (done) return;
      yield value;
    }
  } finally {
    // Not awaited: pending work may take any time.
    iterator.return?.().catch(late);
  }
}

/** Deadlines and shutdown have their own errors. Any other end of a call is a cancellation by the client. */
function abortError(signal: AbortSignal): ConnectError {
  const { reason } = signal;
  // The library reports a closed connection as ABORTED.
  if (reason instanceof ConnectError && reason.code !== Code.Aborted) return reason;
  return new ConnectError("the client cancelled the call", Code.Canceled);
}
