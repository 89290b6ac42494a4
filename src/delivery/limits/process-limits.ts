import { readFileSync } from "node:fs";
import type { DeliveryConfig } from "../../config/index.ts";
import { readMemoryLimit } from "../../lib/process/index.ts";

/** Memory that a process needs besides deliveries, in bytes: code, the Temporal SDK, the database pool. */
export const BASE_MEMORY = 170 * 2 ** 20;
/** Memory per request in flight, in bytes: its connection with TLS and its buffers. Measured by the benchmark `farther`. */
export const MEMORY_EACH = 160 * 2 ** 10;
/** Payloads take at most this part of the memory above BASE_MEMORY: one sixteenth. */
const PAYLOAD_MEMORY_DIVISOR = 16;
/** Copies of a payload in memory: as read, as sent, and encrypted. */
const PAYLOAD_COPIES = 3;
/** File descriptors reserved for other uses: idle connections, the database, Temporal, logs. */
const RESERVED_FILES = 1_200;
/** The limit of requests in flight is not reduced below this number, whatever the system grants. */
const MIN_IN_FLIGHT = 16;

/** Limits of a process: requests in flight, and payload memory in bytes. */
type DeliveryLimits = Pick<DeliveryConfig, "maxInFlight" | "memoryBytes">;

/**
 * Reads the limits granted by the system: open files, and the share of the container's memory in bytes; undefined if unknown. Node has
 * already raised the soft file limit to the hard limit.
 *
 * @param sharedBy the number of processes that share the memory evenly, including this one
 */
export function readGranted(sharedBy: number) {
  const memory = readMemoryLimit();
  return { files: readFileLimit(), memory: memory && Math.floor(memory / sharedBy) };
}

function readFileLimit(): number | undefined {
  try {
    const limit = /^Max open files\s+(\d+|unlimited)/m.exec(readFileSync("/proc/self/limits", "latin1"))?.[1];
    return limit === undefined || limit === "unlimited" ? undefined : Number(limit);
  } catch {
    // Not Linux.
    return undefined;
  }
}

/**
 * Reduces the configured limits to what the system grants.
 *
 * @param reservedFiles file descriptors reserved for API connections in the same process
 * @returns the limits, and a warning with the remedy for each reduction of `maxInFlight`; `memoryBytes` is reduced without a warning
 */
export function clampToGranted(
  wanted: DeliveryLimits,
  granted: ReturnType<typeof readGranted>,
  reservedFiles: number,
): DeliveryLimits & { warnings: string[] } {
  const warnings: string[] = [];
  let { maxInFlight, memoryBytes } = wanted;
  const { files, memory } = granted;
  function clamp(fitting: number, reason: string): void {
    const left = Math.max(MIN_IN_FLIGHT, Math.floor(fitting));
    if (left >= maxInFlight) return;
    warnings.push(
      `DELIVERY_MAX_IN_FLIGHT=${maxInFlight} reduced to ${left}: the process may ${reason}, or lower DELIVERY_MAX_IN_FLIGHT`,
    );
    maxInFlight = left;
  }
  if (files !== undefined) {
    const reserved = RESERVED_FILES + reservedFiles;
    // The API may need far fewer files than its reservation, so deliveries get at least half of all files.
    clamp(
      Math.max(files - reserved, files / 2),
      `open only ${files} files; raise that limit to ${maxInFlight + reserved} (ulimit -n, LimitNOFILE of systemd, --ulimit nofile of a container)`,
    );
  }
  if (memory !== undefined) {
    const spare = Math.max(0, memory - BASE_MEMORY);
    const payloads = Math.max(2 ** 20, Math.floor(spare / PAYLOAD_MEMORY_DIVISOR));
    memoryBytes = Math.min(memoryBytes, payloads);
    clamp(
      (spare - PAYLOAD_COPIES * memoryBytes) / MEMORY_EACH,
      `use only ${Math.round(memory / 2 ** 20)} MiB of memory; raise that limit`,
    );
  }
  return { maxInFlight, memoryBytes, warnings };
}
