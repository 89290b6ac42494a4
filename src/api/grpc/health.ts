import { setTimeout as delay } from "node:timers/promises";
import type { DescService } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type Health,
  HealthCheckResponse_ServingStatus as Status,
} from "../../../gen/health/v1/health_pb.ts";
import { stoppingError } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import type { Readiness } from "../context/readiness.ts";

/** The interval between checks of readiness for `Watch`, in milliseconds. */
const WATCH_INTERVAL_MS = 500;

/** The gRPC health protocol: the empty name and each service's name are serving while the process is ready. */
export function healthService(
  services: readonly DescService[],
  readiness: Readiness,
  stopping: AbortSignal,
): ServiceImpl<typeof Health> {
  const known = new Set(["", ...services.map((service) => service.typeName)]);

  async function status(): Promise<Status> {
    if (stopping.aborted) return Status.NOT_SERVING;
    return (await readiness()).length === 0 ? Status.SERVING : Status.NOT_SERVING;
  }

  return {
    async check({ service }) {
      if (!known.has(service)) {
        throw new DomainError("NOT_FOUND", `there is no service "${service}"`);
      }
      return { status: await status() };
    },

    async list() {
      const now = await status();
      return { statuses: Object.fromEntries([...known].map((name) => [name, { status: now }])) };
    },

    async *watch({ service }, handler) {
      const end = AbortSignal.any([handler.signal, stopping]);
      let told: Status | undefined;
      while (!handler.signal.aborted) {
        const now = known.has(service) ? await status() : Status.SERVICE_UNKNOWN;
        if (now !== told) yield { status: now };
        told = now;
        if (stopping.aborted) throw stoppingError();
        await delay(WATCH_INTERVAL_MS, undefined, { signal: end }).catch(() => {});
      }
    },
  };
}
