import type { DescMethod } from "@bufbuild/protobuf";
import { ServerReflection } from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionAlpha } from "../../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { Health } from "../../../gen/health/v1/health_pb.ts";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";

/** Services that answer without a key. SessionService is how a user signs in, and checks the caller itself. */
const PUBLIC_SERVICES = new Set<string>([
  Health.typeName,
  SessionService.typeName,
  ServerReflection.typeName,
  ServerReflectionAlpha.typeName,
]);

/** Services that do not ask the database. Health tells callers when it is away. */
const WITHOUT_DATABASE = new Set<string>([
  Health.typeName,
  ServerReflection.typeName,
  ServerReflectionAlpha.typeName,
]);

/** Whether the method answers only when the database does. */
export function needsDatabase(method: DescMethod): boolean {
  return !WITHOUT_DATABASE.has(method.parent.typeName);
}

/** Whether anyone may call the method, without an API key or a session. */
export function isPublic(method: DescMethod): boolean {
  return PUBLIC_SERVICES.has(method.parent.typeName);
}
