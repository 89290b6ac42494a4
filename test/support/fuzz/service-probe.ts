/**
 * Loaded into the service's process before the service itself. Tells how long the event loop stood still and how much
 * memory the process holds, over a Unix socket whose path is in FUZZ_PROBE.
 */
import { createServer } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";

/** The interval of the timer whose delay is measured, in milliseconds. */
const RESOLUTION_MS = 5;

const delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
delays.enable();

const server = createServer((socket) => {
  const stallMs = delays.max / 1e6 - RESOLUTION_MS;
  socket.on("error", () => {});
  socket.once("data", (asked) => {
    // Collecting garbage stops everything for a while, so it is not part of what is measured.
    if (String(asked) === "collect") global.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    socket.end(JSON.stringify({ stallMs, rss, heapUsed, external }));
    delays.reset();
  });
});
server.listen(process.env.FUZZ_PROBE);
server.unref();
