import { durationFromMs, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import type { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { addressOf } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { permissionName } from "../../contract/permissions.ts";
import type { Db } from "../../lib/pg/index.ts";
import type { Gate } from "../gate/auth.ts";
import { sessionEnded, unknownKey } from "../gate/key-refusals.ts";
import {
  isFromPage,
  noSessionCookie,
  PAGE_HEADER,
  sessionCookie,
  sessionToken,
  wrongProxyHeader,
} from "../gate/page-session.ts";
import { endSession } from "../sessions.ts";
import { apiKeyMessage } from "./key-messages.ts";

/** A key needs one of these permissions to use the admin UI. */
const SUFFICIENT_PERMISSIONS = [Permission.MANAGE_API_KEYS, Permission.READ_ADMINISTRATIVE_DATA];

/** Signs browsers in and out. */
export function sessionService(
  context: { db: Db; deliveryTimeoutMs: number },
  gate: Gate,
): ServiceImpl<typeof SessionService> {
  const { db } = context;
  return {
    async signIn(request, handler) {
      assertFromPage(handler);
      const { key } = await gate.identify({
        secret: request.apiKey,
        address: () => addressOf(handler),
        tell: (name, value) => handler.responseHeader.set(name, value),
      });
      if (!SUFFICIENT_PERMISSIONS.some((permission) => key.permissions.includes(permission))) {
        throw new DomainError(
          "PERMISSION_MISSING",
          `the API key "${key.name}" lacks permission for the settings page; sign in with a key that has ${SUFFICIENT_PERMISSIONS.map(permissionName).join(" or ")}`,
          {
            metadata: { permission: SUFFICIENT_PERMISSIONS.map(permissionName).join(",") },
          },
        );
      }
      const session = await gate.sessions.start(key.id, request.apiKey);
      if (!session) throw unknownKey(request.apiKey);
      // Ends the previous session, whose token nobody would hold any more. Not limited: the caller has a valid key.
      const before = sessionToken(handler);
      if (before !== null) await endSession(db, before);
      handler.responseHeader.set("Set-Cookie", sessionCookie(handler, session.token));
      return { session: { apiKey: apiKeyMessage(key), expires: timestampFromDate(session.expires) } };
    },

    async signOut(_request, handler) {
      assertFromPage(handler);
      const token = sessionToken(handler);
      if (token !== null) await gate.sessions.end(token, () => addressOf(handler));
      handler.responseHeader.set("Set-Cookie", noSessionCookie(handler));
      return {};
    },

    async getSession(_request, handler) {
      assertFromPage(handler);
      const token = sessionToken(handler);
      const session = token === null ? null : await gate.sessions.find(token, () => addressOf(handler));
      if (!session) throw sessionEnded();
      return {
        session: { apiKey: apiKeyMessage(session.key), expires: timestampFromDate(session.expires) },
        deliveryTimeout: durationFromMs(context.deliveryTimeoutMs),
      };
    },
  };
}

/** @throws DomainError PERMISSION_DENIED for requests not sent by the admin UI, or not recognized because of a proxy's headers */
function assertFromPage(handler: HandlerContext): void {
  const wrong = wrongProxyHeader(handler);
  if (wrong !== null) throw new DomainError("PROXY_HEADER_WRONG", wrong);
  if (isFromPage(handler)) return;
  throw new DomainError(
    "NOT_ALLOWED",
    `only the service's own settings page signs in and out: send ${PAGE_HEADER} from the same origin, or use X-Service-Key without a session`,
  );
}
