import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionAlpha } from "../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { Health } from "../../gen/health/v1/health_pb.ts";
import type { Gate } from "../keys/gate/index.ts";
import type { Readiness } from "./context/readiness.ts";
import { healthService } from "./grpc/health.ts";
import { reflectionService } from "./grpc/reflection.ts";
import { messageLimits } from "./limits/message-limits.ts";
import { requestJsonOptions } from "./rpc/request-values.ts";
import type { Load } from "./turns/heavy-methods.ts";

/** A service, and what implements it. */
export interface Served extends Load {
  service: DescService;
  implementation: Readonly<Record<string, (...given: never[]) => unknown>>;
}

/** Creates the services of the API. @param stopping ends endless calls with its reason */
export type CreateServices = (gate: Gate, stopping: AbortSignal) => readonly Served[];

/** The services that the API itself implements: health and reflection for gRPC clients. */
export const OWN_SERVICES: readonly DescService[] = [Health, ServerReflection, ServerReflectionAlpha];

/**
 * All services, for every listener and protocol.
 *
 * @param stopping ends endless calls such as Health.Watch with its reason
 */
export function createRoutes(
  services: readonly Served[],
  readiness: Readiness,
  stopping: AbortSignal,
): (router: ConnectRouter) => void {
  const all = [...services.map(({ service }) => service), ...OWN_SERVICES];
  const reflection = reflectionService(all, stopping) as unknown as Served["implementation"];
  const health = healthService(all, readiness, stopping) as unknown as Served["implementation"];
  return (router) => {
    for (const { service, implementation } of services) addService(router, service, implementation);
    addService(router, Health, health);
    // The two versions of the protocol have the same messages under different names.
    for (const version of [ServerReflection, ServerReflectionAlpha]) addService(router, version, reflection);
  };
}

/** Adds the methods of a service, each with the limit and the JSON options of its messages. */
function addService(
  router: ConnectRouter,
  service: DescService,
  implementation: Served["implementation"],
): void {
  for (const method of service.methods) {
    const run = implementation[method.localName]?.bind(implementation);
    router.rpc(method, run as never, {
      readMaxBytes: messageLimits(method).maxBytes,
      jsonOptions: requestJsonOptions(method.input),
    });
  }
}
