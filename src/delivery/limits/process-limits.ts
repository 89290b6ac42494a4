import { readFileSync } from "node:fs";

/** What a process needs besides deliveries: its code, the Temporal SDK, the database's pool; in bytes. */
export const BASE_MEMORY = 170 * 2 ** 20;
/** What a request in flight takes: its connection with TLS, and its buffers; in bytes. Measured by the bench `farther`. */
export const MEMORY_EACH = 160 * 2 ** 10;
/** The part of the memory beyond that, which payloads may take. */
const PAYLOAD_PART = 16;
/** What a payload takes of it: as it was read, as it is sent, and encrypted. */
const PAYLOAD_COPIES = 3;
/** Files besides deliveries': idle connections, the database, Temporal, logs. */
const OTHER_FILES = 1_200;
/** Fewer are never allowed, whatever the limits: deliveries must go on. */
const LEAST_IN_FLIGHT = 16;

/** How much a process may have in flight. */
export interface DeliveryLimits {
  maxInFlight: number;
  memoryBytes: number;
}

/** What the system grants the process; undefined where it says nothing. */
export interface Granted {
  /** Files that may be open at once. */
  files: number | undefined;
  /** Its part of a container's memory, in bytes. */
  memory: number | undefined;
}

/**
 * Reads what the system grants. Node has raised the file limit as far as it may by then.
 *
 * @param sharedBy processes that share the memory evenly, this one included
 */
export function readGranted(sharedBy: number): Granted {
  const memory = readMemoryLimit();
  return {
    files: readFileLimit(),
    memory: memory === undefined ? undefined : Math.floor(memory / sharedBy),
  };
}

/** The memory of the container, in bytes; undefined outside of one. */
export function readMemoryLimit(): number | undefined {
  const memory = process.constrainedMemory();
  // Without a limit it is 0, or a number beyond all memory.
  return memory > 0 && memory < 2 ** 50 ? memory : undefined;
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
 * Lowers the configured limits to what the system grants.
 *
 * @param reservedFiles of the API's connections, where the process serves it too
 * @returns also a warning for each that was lowered, with the remedy
 */
export function clampToGranted(
  wanted: DeliveryLimits,
  granted: Granted,
  reservedFiles: number,
): DeliveryLimits & { warnings: string[] } {
  const warnings: string[] = [];
  let { maxInFlight, memoryBytes } = wanted;
  const { files, memory } = granted;
  if (files !== undefined && files < maxInFlight + OTHER_FILES + reservedFiles) {
    // The API's connections may never come: deliveries give way to half of them.
    const left = Math.max(
      LEAST_IN_FLIGHT,
      Math.floor(Math.max(files - OTHER_FILES - reservedFiles, files / 2)),
    );
    if (left < maxInFlight) {
      warnings.push(
        `at most ${left} requests can be in flight instead of DELIVERY_MAX_IN_FLIGHT=${maxInFlight}: the process may open ${files} files; raise that limit to ${maxInFlight + OTHER_FILES + reservedFiles} (ulimit -n, LimitNOFILE of systemd, --ulimit nofile of a container), or lower DELIVERY_MAX_IN_FLIGHT`,
      );
      maxInFlight = left;
    }
  }
  if (memory !== undefined) {
    const spare = Math.max(0, memory - BASE_MEMORY);
    const payloads = Math.max(2 ** 20, Math.floor(spare / PAYLOAD_PART));
    memoryBytes = Math.min(memoryBytes, payloads);
    const left = Math.max(LEAST_IN_FLIGHT, Math.floor((spare - PAYLOAD_COPIES * memoryBytes) / MEMORY_EACH));
    if (left < maxInFlight) {
      warnings.push(
        `at most ${left} requests can be in flight instead of DELIVERY_MAX_IN_FLIGHT=${maxInFlight}: the process may use ${Math.round(memory / 2 ** 20)} MiB of memory; raise that limit, or lower DELIVERY_MAX_IN_FLIGHT`,
      );
      maxInFlight = left;
    }
  }
  return { maxInFlight, memoryBytes, warnings };
}
