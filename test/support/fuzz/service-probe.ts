/**
 * Loaded into the service's process before the service itself. Tells how long the event loop stood still and how much
 * memory the process holds, over a Unix socket whose path is in FUZZ_PROBE.
 */
import { createServer } from "node:net";

/** The interval of the timer between whose turns the work is measured, in milliseconds. */
const INTERVAL_MS = 5;

/** The longest that the event loop worked between two turns, in milliseconds. */
let workMs = 0;
let workedMs = threadMs();
setInterval(() => {
  workMs = Math.max(workMs, threadMs() - workedMs);
  workedMs = threadMs();
}, INTERVAL_MS).unref();

/** The processor time of this thread, in milliseconds. Other processes of the machine do not add to it. */
function threadMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

const server = createServer((socket) => {
  const measured = workMs;
  // Collecting garbage stops everything for a while, so it is not part of what is measured.
  global.gc?.();
  socket.on("error", () => {}).resume();
  const { heapUsed: heap, rss } = process.memoryUsage();
  socket.end(JSON.stringify({ workMs: measured, heap, rss }));
  setImmediate(() => {
    workedMs = threadMs();
    workMs = 0;
  });
});
server.listen(process.env.FUZZ_PROBE).unref();
