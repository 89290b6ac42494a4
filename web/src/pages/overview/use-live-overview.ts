import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { useTransport } from "@connectrpc/connect-query";
import { useDocumentVisibility } from "@mantine/hooks";
import { useEffect, useState } from "react";
import { type Overview, StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";

/** The delay before the stream is opened again, in milliseconds: doubled each time, up to MAX_WAIT_MS. */
const MIN_WAIT_MS = 1_000;
/** The maximum of that delay, in milliseconds. */
const MAX_WAIT_MS = 30_000;
/**
 * The time without a message after which the stream counts as broken, in milliseconds. The service sends an unchanged
 * overview every 20 s, so a longer silence means that the connection was lost without being closed.
 */
const MAX_SILENCE_MS = 60_000;

const SILENT = new ConnectError(`No figures arrived for ${MAX_SILENCE_MS / 1_000} s.`, Code.DeadlineExceeded);

/** The overview as last told, and whether it is still being told. */
export interface LiveOverview {
  overview: Overview | undefined;
  /** The error of the stream, which is opened again automatically. */
  failure: unknown;
}

/**
 * Follows the overview. Asks again when the service ends the stream or cannot be reached, each time after a longer
 * wait. A page that nobody looks at does not follow: over HTTP/1.1 a browser has six connections to a service, and
 * each stream keeps one.
 */
export function useLiveOverview(): LiveOverview {
  const transport = useTransport();
  const visible = useDocumentVisibility() === "visible";
  const [live, setLive] = useState<LiveOverview>({ overview: undefined, failure: undefined });

  useEffect(() => {
    if (!visible) return;
    const client = createClient(StatsService, transport);
    const end = new AbortController();
    async function follow() {
      let wait = MIN_WAIT_MS;
      while (!end.signal.aborted) {
        const broken = new AbortController();
        const giveUp = () => broken.abort(SILENT);
        let silence = setTimeout(giveUp, MAX_SILENCE_MS);
        const signal = AbortSignal.any([end.signal, broken.signal]);
        try {
          for await (const { overview } of client.watchOverview({}, { signal })) {
            clearTimeout(silence);
            silence = setTimeout(giveUp, MAX_SILENCE_MS);
            wait = MIN_WAIT_MS;
            setLive({ overview, failure: undefined });
          }
        } catch (error) {
          if (end.signal.aborted) return;
          const failure: unknown = broken.signal.aborted ? SILENT : error;
          setLive(({ overview }) => ({ overview, failure }));
        } finally {
          clearTimeout(silence);
        }
        await elapsed(wait, end.signal);
        wait = Math.min(wait * 2, MAX_WAIT_MS);
      }
    }
    void follow();
    return () => end.abort();
  }, [transport, visible]);
  return live;
}

/** Resolves after so long, or at once when told to end. */
function elapsed(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
