import type { DescMethod } from "@bufbuild/protobuf";
import { getOption, hasOption } from "@bufbuild/protobuf";
import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionAlpha } from "../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { Health } from "../../gen/health/v1/health_pb.ts";
import { required_permission } from "../../gen/webhook/v1/options_pb.ts";
import { type ApiKeyRow, findApiKeys } from "../db/api-keys.ts";
import type { Db } from "../db/database.ts";
import { DomainError } from "../domain-error.ts";
import type { ApiContext } from "./context.ts";
import { toConnectError } from "./errors.ts";
import { gathering } from "./gathering.ts";
import { permissionName } from "./permissions.ts";

/** The header that carries the API key (contract, section 5). */
export const KEY_HEADER = "X-Service-Key";

/** Services that answer without a key. */
const PUBLIC_SERVICES = new Set<string>([
  Health.typeName,
  ServerReflection.typeName,
  ServerReflectionAlpha.typeName,
]);

const callerKey = createContextKey<ApiKeyRow | null>(null, { description: "the API key of the caller" });

/** The key that a request came with; the gate has seen to it that there is one. */
export function callerOf(context: HandlerContext): ApiKeyRow {
  const caller = context.values.get(callerKey);
  if (!caller) throw new Error(`${context.method.name} was called without passing the gate`);
  return caller;
}

type KeyFinder = (secret: string) => Promise<ApiKeyRow | null>;
const finders = new WeakMap<Db, KeyFinder>();
/** Keys of one look-up. */
const MAX_KEYS = 1_000;

/**
 * Callers that arrive together share a look-up, those of one key one place in it. Nobody joins a look-up that has
 * begun, so a key that is revoked now is refused from now on.
 */
function keyFinder(db: Db): KeyFinder {
  let finder = finders.get(db);
  if (!finder) {
    finder = gathering((secrets) => findApiKeys(db, secrets), { most: MAX_KEYS, atOnce: 2 });
    finders.set(db, finder);
  }
  return finder;
}

/**
 * Finds the key and checks that it has the permission that the method's option names. Null for public methods.
 *
 * @throws DomainError UNAUTHENTICATED or PERMISSION_DENIED (contract, sections 4 and 5)
 */
export async function authorise(
  context: ApiContext,
  method: DescMethod,
  secret: string | null | undefined,
): Promise<ApiKeyRow | null> {
  if (PUBLIC_SERVICES.has(method.parent.typeName)) return null;
  if (!secret) {
    throw new DomainError("UNAUTHENTICATED", `the header ${KEY_HEADER} is missing: send your API key in it`, {
      reason: "API_KEY_MISSING",
    });
  }
  const key = await keyFinder(context.db)(secret);
  if (!key) {
    // Several headers of one name arrive as one, joined by commas.
    const problem = secret.includes(",")
      ? `${KEY_HEADER} holds more than one key: send one, once`
      : `the API key in ${KEY_HEADER} is unknown or revoked`;
    throw new DomainError("UNAUTHENTICATED", problem, { reason: "API_KEY_UNKNOWN" });
  }
  if (!hasOption(method, required_permission)) {
    throw new DomainError(
      "PERMISSION_DENIED",
      `${method.name} names no required permission, so no key may call it`,
    );
  }
  const needed = getOption(method, required_permission);
  if (!key.permissions.includes(needed)) {
    const permission = permissionName(needed);
    throw new DomainError(
      "PERMISSION_DENIED",
      `the API key lacks the permission ${permission}, which ${method.name} requires`,
      { reason: "PERMISSION_MISSING", metadata: { permission } },
    );
  }
  return key;
}

/** Refuses callers before their request is read, and remembers the key for the services. */
export function requestGate(context: ApiContext): (handler: HandlerContext) => Promise<void> {
  return async (handler) => {
    try {
      handler.values.set(
        callerKey,
        await authorise(context, handler.method, handler.requestHeader.get(KEY_HEADER)),
      );
    } catch (error) {
      throw toConnectError(error, context.log, handler.method.name);
    }
  };
}

/**
 * Asks again whether the caller may go on, for calls that last: their key may have been revoked since they began.
 *
 * @throws DomainError UNAUTHENTICATED or PERMISSION_DENIED
 */
export async function stillAuthorised(context: ApiContext, handler: HandlerContext): Promise<void> {
  await authorise(context, handler.method, handler.requestHeader.get(KEY_HEADER));
}
