import type { Db } from "../../lib/pg/index.ts";
import { endSession, findSession, type SessionRow, startSession } from "../sessions.ts";
import { tooManyUnknownSessions } from "./key-refusals.ts";
import { createWrongKeys } from "./wrong-keys.ts";

/**
 * The sessions of the settings page. Unknown tokens are limited as wrong keys are, so that random cookies cost no query, but
 * counted apart from them, so that the tabs of ended sessions do not delay a sign-in.
 */
export interface Sessions {
  /** Starts a session of a key, as the function of the same name in `db`. */
  start(keyId: string, secret: string): Promise<{ token: string; expires: Date } | null>;
  /**
   * The session with this token, extended by this use; null if it has ended or never was.
   *
   * @throws DomainError RESOURCE_EXHAUSTED if too many unknown tokens came from the address
   */
  find(token: string, address: () => string): Promise<SessionRow | null>;
  /**
   * Ends a session. Does nothing if there is none.
   *
   * @throws DomainError RESOURCE_EXHAUSTED if too many unknown tokens came from the address
   */
  end(token: string, address: () => string): Promise<void>;
}

/** @param unknownPerMinute the number of unknown tokens per address before it is throttled; 0 for no limit */
export function createSessions(db: Db, unknownPerMinute: number): Sessions {
  const unknown = unknownPerMinute > 0 ? createWrongKeys(unknownPerMinute) : null;

  async function assertMayAsk(token: string, address: () => string): Promise<void> {
    const waitMs = (await unknown?.waitBefore(token, address)) ?? 0;
    if (waitMs > 0) throw tooManyUnknownSessions(waitMs);
  }

  return {
    async start(keyId, secret) {
      const session = await startSession(db, keyId, secret);
      if (session) unknown?.found(session.token);
      return session;
    },

    async find(token, address) {
      await assertMayAsk(token, address);
      const session = await findSession(db, token);
      if (session) unknown?.found(token);
      else await unknown?.notFound(token, address);
      return session;
    },

    async end(token, address) {
      await assertMayAsk(token, address);
      if (!(await endSession(db, token))) await unknown?.notFound(token, address);
    },
  };
}
