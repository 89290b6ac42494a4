import type { DescMethod } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import type { Logger } from "pino";
import { reasonOf, refusal, toConnectError } from "../../calls/errors/index.ts";
import { type ApiKeyRow, addressOf, type Identity, setAddress, setIdentity } from "../../calls/index.ts";
import type { LimitsConfig } from "../../config/index.ts";
import { neededPermission, permissionName } from "../../contract/permissions.ts";
import { type Db, gathering, onBehalfOf } from "../../lib/pg/index.ts";
import type { ApiInstruments } from "../../metrics/index.ts";
import { findApiKeys } from "../api-keys.ts";
import { sessionIdOf } from "../sessions.ts";
import { ADMISSION_HEADER, type Admissions } from "./admissions.ts";
import {
  forNobody,
  KEY_HEADER,
  lacksPermission,
  missingKey,
  sessionEnded,
  tooManyRequests,
  tooManyWrongKeys,
  unknownKey,
} from "./key-refusals.ts";
import { createKeyUse } from "./key-use.ts";
import { sessionToken } from "./page-session.ts";
import { isPublic } from "./public-services.ts";
import { createRequestLimit, rateLimitFields } from "./request-limits.ts";
import { createSessions, type Sessions } from "./sessions.ts";
import { createWrongKeys } from "./wrong-keys.ts";

/** The maximum number of keys per lookup. */
const MAX_KEYS = 1_000;

/** The credentials of a caller, and how to report its rate limit. */
export interface Caller {
  secret: string | null | undefined;
  /** Whether the request has an Authorization header, which is not read. */
  authorised?: boolean;
  /** The session token of the admin UI, used if there is no secret. */
  session?: string | null;
  /** Returns the caller's address as text. Called only for keys and sessions that this process has not seen valid. */
  address: () => string;
  /** Sets a header of the response, successful or not. */
  tell: (name: string, value: string) => void;
}

/** Authenticates the callers of one API, counts their requests, and checks their permissions. */
export interface Gate {
  /** The sessions of the admin UI. */
  sessions: Sessions;
  /**
   * Finds the caller's key, counts the request against its limit, and checks the permission that the method's option
   * requires. Returns null for public methods.
   *
   * @throws DomainError UNAUTHENTICATED or PERMISSION_DENIED (contract, sections 4 and 5); RESOURCE_EXHAUSTED after too
   *   many requests, invalid keys or unknown sessions
   */
  admit(method: DescMethod, caller: Caller): Promise<Identity | null>;
  /**
   * Finds the caller's key, with any permissions, and counts the request against its limit.
   *
   * @throws DomainError UNAUTHENTICATED; RESOURCE_EXHAUSTED after too many requests, invalid keys or unknown
   *   sessions
   */
  identify(caller: Caller): Promise<Identity>;
  /**
   * Checks again that the caller of a method that is not public is authorized, for long-running calls: the key may have
   * been revoked since their start. Returns the key as it is now.
   *
   * @throws DomainError UNAUTHENTICATED or PERMISSION_DENIED
   */
  stillAuthorised(handler: HandlerContext): Promise<ApiKeyRow>;
  /** The same for a caller of REST. */
  recheck(method: DescMethod, caller: Caller): Promise<ApiKeyRow>;
  /** Writes pending data: when keys were last used. */
  close(): Promise<void>;
}

export function createGate({
  db,
  log,
  limits,
}: {
  db: Db;
  log: Logger;
  limits: Pick<LimitsConfig, "requestsPerMinute" | "wrongKeysPerMinute">;
}): Gate {
  // Concurrent calls share a lookup, and calls with the same key share an item of it. No call joins a running lookup, so
  // every process rejects a revoked key immediately.
  const find = gathering((secrets: readonly string[]) => findApiKeys(db, secrets), {
    most: MAX_KEYS,
    atOnce: 2,
  });
  const use = createKeyUse(db, log);
  const countRequest = limits.requestsPerMinute > 0 ? createRequestLimit(limits.requestsPerMinute) : null;
  const wrongKeys = limits.wrongKeysPerMinute > 0 ? createWrongKeys(limits.wrongKeysPerMinute) : null;
  const sessions = createSessions(db, limits.wrongKeysPerMinute);

  /** The owner of a secret or session; null for an unknown secret. Rejects an unknown session. */
  async function findIdentity({ secret, authorised, session, address }: Caller): Promise<Identity | null> {
    if (secret) {
      const key = await find(secret);
      return key && { key, sessionId: null };
    }
    if (!session) throw missingKey(authorised);
    const found = await sessions.find(session, address);
    if (!found) throw sessionEnded();
    return { key: found.key, sessionId: sessionIdOf(session) };
  }

  async function identify(caller: Caller): Promise<Identity> {
    const { secret, address } = caller;
    if (secret) {
      const waitMs = (await wrongKeys?.waitBefore(secret, address)) ?? 0;
      if (waitMs > 0) throw tooManyWrongKeys(waitMs);
    }
    const identity = await findIdentity(caller);
    if (!identity) {
      if (secret) await wrongKeys?.notFound(secret, address);
      throw unknownKey(secret);
    }
    if (secret) wrongKeys?.found(secret);
    use.note(identity.key.id);
    const allowance = await countRequest?.(identity.key.id);
    if (allowance) {
      for (const [name, value] of rateLimitFields(allowance)) caller.tell(name, value);
      if (allowance.over) throw tooManyRequests(allowance);
    }
    return identity;
  }

  async function recheck(method: DescMethod, caller: Caller): Promise<ApiKeyRow> {
    const identity = await findIdentity(caller);
    if (!identity) throw unknownKey(caller.secret);
    assertPermission(identity.key, method);
    return identity.key;
  }

  return {
    sessions,
    identify,
    recheck,
    async admit(method, caller) {
      if (isPublic(method)) return null;
      const identity = await identify(caller);
      assertPermission(identity.key, method);
      return identity;
    },
    // Waits for no turn of a call that reads much.
    stillAuthorised: (handler) =>
      onBehalfOf(handler.signal, () => recheck(handler.method, callerFrom(handler))),
    close: () => use.close(),
  };
}

/** Rejects callers before their request is read, and stores the key for the services. */
export function requestGate(
  gate: Gate,
  { log, instruments }: { log: Logger; instruments: Pick<ApiInstruments, "refusals"> },
  database: { refuseWhileSilent<T>(work: () => Promise<T>): Promise<T> },
): (handler: HandlerContext) => Promise<void> {
  return async (handler) => {
    try {
      const admitted = () => gate.admit(handler.method, callerFrom(handler));
      const identity = isPublic(handler.method) ? null : await database.refuseWhileSilent(admitted);
      setIdentity(handler, identity);
    } catch (error) {
      const told = toConnectError(error, log, handler.method.name);
      instruments.refusals.add(1, { reason: reasonOf(told) });
      throw told;
    }
  };
}

/** The gate of the in-memory services: the REST gateway has authenticated the key before it read the request. */
export function admittedGate(admissions: Admissions): (handler: HandlerContext) => void {
  return (handler) => {
    const admission = admissions.find(handler.requestHeader.get(ADMISSION_HEADER) ?? "");
    // The client cancelled the call, which ends its admission.
    if (!admission) throw refusal(missingKey());
    setIdentity(handler, admission.identity);
    setAddress(handler, admission.address);
  };
}

/** The caller's credentials, by key or session. */
function callerFrom(handler: HandlerContext): Caller {
  return {
    secret: handler.requestHeader.get(KEY_HEADER),
    authorised: handler.requestHeader.has("Authorization"),
    session: sessionToken(handler),
    address: () => addressOf(handler),
    tell: (name, value) => handler.responseHeader.set(name, value),
  };
}

function assertPermission(key: ApiKeyRow, method: DescMethod): void {
  const needed = neededPermission(method);
  if (needed === undefined) throw forNobody(method.name);
  if (!key.permissions.includes(needed)) throw lacksPermission(permissionName(needed), method.name);
}
