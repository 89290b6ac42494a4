/**
 * Loaded into the service's process before the service itself. Tells how long the event loop stood still and how much
 * memory the process holds, over a Unix socket whose path is in FUZZ_PROBE.
 */
import { createServer } from "node:net";

/** The interval of the timer whose delay is measured, in milliseconds. */
const INTERVAL_MS = 5;

/** The longest time between two turns of the event loop, and the longest that it worked between two, in milliseconds. */
let delayMs = 0;
let workMs = 0;

let turnedAt = performance.now();
let workedMs = threadMs();
setInterval(() => {
  const now = performance.now();
  const worked = threadMs();
  delayMs = Math.max(delayMs, now - turnedAt - INTERVAL_MS);
  workMs = Math.max(workMs, worked - workedMs);
  turnedAt = now;
  workedMs = worked;
}, INTERVAL_MS).unref();

/** The processor time of this thread, in milliseconds. Other processes of the machine do not add to it. */
function threadMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

const server = createServer((socket) => {
  socket.on("error", () => {});
  socket.once("data", (asked) => {
    const measured = { delayMs, workMs };
    // Collecting garbage stops everything for a while, so it is not part of what is measured.
    if (String(asked) === "collect") global.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    socket.end(JSON.stringify({ ...measured, rss, heapUsed, external }), () => {
      setImmediate(() => {
        turnedAt = performance.now();
        workedMs = threadMs();
        delayMs = 0;
        workMs = 0;
      });
    });
  });
});
server.listen(process.env.FUZZ_PROBE);
server.unref();
