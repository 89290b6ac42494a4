import { Code, ConnectError } from "@connectrpc/connect";

/**
 * The work's result, or the signal's reason when that comes first; the work is not awaited any more then.
 *
 * @param late told how the work failed when nobody waits for it any more
 * @throws ConnectError the signal's reason, or CANCELLED when that is another
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

/** The messages, until the signal comes; throws and takes `late` as `orAborted` does. */
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
    // Not awaited: what is under way in there may take as long as it likes.
    iterator.return?.().catch(late);
  }
}

/** Deadlines and the service's stopping say what they are; anything else that ends a call is its caller. */
function abortError(signal: AbortSignal): ConnectError {
  const { reason } = signal;
  // The library's word for a connection that ended is ABORTED.
  if (reason instanceof ConnectError && reason.code !== Code.Aborted) return reason;
  return new ConnectError("the caller went away", Code.Canceled);
}
