import type { DescMethod } from "@bufbuild/protobuf";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionAlpha } from "../../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { Health } from "../../../gen/health/v1/health_pb.ts";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";

/** Services without key authentication. SessionService is for signing in and checks the caller itself. */
const PUBLIC_SERVICES = new Set<string>([
  Health.typeName,
  SessionService.typeName,
  ServerReflection.typeName,
  ServerReflectionAlpha.typeName,
]);

/** Services that do not use the database. Health reports its unavailability. */
const WITHOUT_DATABASE = new Set<string>([
  Health.typeName,
  ServerReflection.typeName,
  ServerReflectionAlpha.typeName,
]);

/** Whether the method requires the database. */
export function needsDatabase(method: DescMethod): boolean {
  return !WITHOUT_DATABASE.has(method.parent.typeName);
}

/** Whether the method can be called without an API key or a session. */
export function isPublic(method: DescMethod): boolean {
  return PUBLIC_SERVICES.has(method.parent.typeName);
}
