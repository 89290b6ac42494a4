import { durationMs } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { TransportProvider } from "@connectrpc/connect-query";
import { type QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createContext, type ReactNode, use, useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { ApiKey } from "../../../gen/webhook/v1/api_key_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { type Session, SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { permissionName } from "../../../src/contract/permissions.ts";
import { BASE_PATH } from "../base-path.ts";
import { ASK_AGAIN_MS, useAwaySince } from "./away.ts";
import { createQueryClient } from "./queries.ts";
import { type Connect, createPageTransport } from "./transport.ts";
import { readEventTypes } from "./type-names.ts";

/** A permission as the contract spells it. */
export type PermissionName =
  | "Read_Administrative_Data"
  | "Write_Administrative_Data"
  | "Publish_Events"
  | "Manage_Api_Keys"
  | "Manage_Customers";

/**
 * Remembers that somebody was signed in: scripts cannot see the cookie, and an end deserves a word. Each sign-in stores
 * another value, which tells other tabs that their session is another one.
 */
const SIGNED_IN = `signed-in${BASE_PATH}`;

/** The name of the lock that a tab holds while it replaces the session of all tabs. */
const SESSION_LOCK = `session${BASE_PATH}`;

const COOKIE_LOST =
  "the key is right, but your browser did not keep the session: open this page over https, or on localhost, and allow its cookie";

/** Whether somebody is signed in. */
export type SessionState =
  | { is: "unknown" }
  /** The service could not be asked. */
  | { is: "failed"; error: unknown }
  | { is: "in"; session: Session; deliveryTimeoutMs: number | undefined }
  /** `ended`: it was in, and the service says it is over. `left`: signed out on this page. */
  | { is: "out"; because: "never" | "ended" | "left" };

/** The session, with functions to sign in and out. */
export interface SessionAccess {
  state: SessionState;
  /** @throws ConnectError when the key is not taken */
  signIn(apiKey: string): Promise<void>;
  /** Ends the session in the service. @throws ConnectError when the service does not answer */
  signOut(): Promise<void>;
  /** Runs what ends the session and signs in again. Other tabs, whose calls are refused meanwhile, wait for it. */
  replaceSession<T>(run: () => Promise<T>): Promise<T>;
  /** Asks again who is signed in. */
  refresh(): void;
}

const SessionContext = createContext<SessionAccess | null>(null);

/** Knows who is signed in, and calls the service for everything below it. */
export function SessionProvider(props: { connect: Connect | undefined; children: ReactNode }) {
  const { connect, children } = props;
  const [state, setState] = useState<SessionState>({ is: "unknown" });
  const [queries] = useState(createQueryClient);
  const replaces = useRef(false);
  const [transport] = useState(() => createPageTransport(hasSession, connect));
  const client = useMemo(() => createClient(SessionService, transport), [transport]);
  /** Reads what names event types, before pages are shown to a session. */
  const withTypes = useCallback(
    async (found: SessionState) => {
      const permissions = found.is === "in" ? (found.session.apiKey?.permissions ?? []) : [];
      if (permissions.includes(Permission.READ_ADMINISTRATIVE_DATA)) await readEventTypes(transport, queries);
      return found;
    },
    [transport, queries],
  );
  const read = useCallback(() => {
    const found = readSession(client).then(withTypes);
    found.then(setState, (error: unknown) => {
      // Too many ended sessions came from this address. Signing in with a key is not limited by them.
      const isLimited = ConnectError.from(error).code === Code.ResourceExhausted;
      setState(isLimited ? signedOut() : { is: "failed", error });
    });
  }, [client, withTypes]);
  const refresh = useCallback(() => {
    setState({ is: "unknown" });
    read();
  }, [read]);
  useEffect(refresh, [refresh]);
  useEffect(() => {
    // Each failed read sets another state.
    if (state.is !== "failed") return;
    const timer = setTimeout(read, ASK_AGAIN_MS);
    return () => clearTimeout(timer);
  }, [state, read]);

  /** Whether there is a session, once no other tab is replacing it. If not, this one is over. */
  async function hasSession(): Promise<boolean> {
    const read = () => readSession(client);
    const now = await (replaces.current ? read() : locked("shared", read)).catch(() => undefined);
    if (now?.is === "in") return true;
    setState((before) => (before.is === "in" ? { is: "out", because: "ended" } : before));
    return false;
  }

  const keyId = state.is === "in" ? state.session.apiKey?.id : undefined;
  useEffect(() => {
    // Raised by sign-ins and sign-outs in other tabs, with which this one shares the cookie. The key is null if the browser
    // cleared everything.
    const onStorage = async ({ key }: StorageEvent) => {
      if (key !== SIGNED_IN && key !== null) return;
      const read = keyId === undefined ? undefined : await readSession(client).catch(() => undefined);
      // A new session of the same key leaves the page as it is, with its forms and the secrets that are shown once.
      if (read?.is === "in" && read.session.apiKey?.id === keyId) setState(read);
      else refresh();
    };
    window.addEventListener("storage", onStorage);
    return () => window.removeEventListener("storage", onStorage);
  }, [client, keyId, refresh]);
  useAskingAgain(client, queries);
  const isIn = state.is === "in";
  useEffect(() => {
    // Nobody is to see what the one before them was shown.
    if (!isIn) queries.clear();
  }, [isIn, queries]);

  const access = useMemo<SessionAccess>(
    () => ({
      state,
      refresh,
      async signIn(apiKey) {
        await client.signIn({ apiKey });
        const signedIn = await readSession(client);
        if (signedIn.is === "out") throw new Error(COOKIE_LOST);
        localStorage.setItem(SIGNED_IN, String(Date.now()));
        setState(await withTypes(signedIn));
      },
      async signOut() {
        await client.signOut({});
        localStorage.removeItem(SIGNED_IN);
        setState({ is: "out", because: "left" });
      },
      replaceSession: (run) =>
        locked("exclusive", async () => {
          replaces.current = true;
          try {
            return await run();
          } finally {
            replaces.current = false;
          }
        }),
    }),
    [state, refresh, client, withTypes],
  );
  return (
    <SessionContext value={access}>
      <TransportProvider transport={transport}>
        <QueryClientProvider client={queries}>{children}</QueryClientProvider>
      </TransportProvider>
    </SessionContext>
  );
}

/** While the service is away, asks whether it answers again. When it does, reads anew what could not be read. */
function useAskingAgain(client: Client<typeof SessionService>, queries: QueryClient): void {
  const isAway = useAwaySince() !== undefined;
  useEffect(() => {
    if (!isAway) return;
    const ask = () => client.getSession({}, { timeoutMs: ASK_AGAIN_MS }).catch(() => undefined);
    const timer = setInterval(() => void ask(), ASK_AGAIN_MS);
    return () => {
      clearInterval(timer);
      void queries.refetchQueries({ type: "active", predicate: ({ state }) => state.error !== null });
    };
  }, [isAway, client, queries]);
}

async function readSession(client: Client<typeof SessionService>): Promise<SessionState> {
  try {
    const { session, deliveryTimeout } = await client.getSession({});
    const deliveryTimeoutMs = deliveryTimeout && durationMs(deliveryTimeout);
    return session ? { is: "in", session, deliveryTimeoutMs } : { is: "out", because: "never" };
  } catch (error) {
    if (ConnectError.from(error).code !== Code.Unauthenticated) throw error;
    return signedOut();
  }
}

/** Runs with the lock of the session. Browsers have locks only where the connection is secure. */
async function locked<T>(mode: LockMode, run: () => Promise<T>): Promise<T> {
  return window.isSecureContext ? navigator.locks.request(SESSION_LOCK, { mode }, run) : run();
}

function signedOut(): SessionState {
  return { is: "out", because: localStorage.getItem(SIGNED_IN) === null ? "never" : "ended" };
}

/** The session, with functions to sign in and out. */
export function useSessionAccess(): SessionAccess {
  const access = use(SessionContext);
  if (!access) throw new Error("useSessionAccess needs a SessionProvider above it");
  return access;
}

/** The session of who is signed in. @throws Error where nobody is: pages are shown to nobody else */
export function useSession(): Session {
  const { state } = useSessionAccess();
  if (state.is !== "in") throw new Error("useSession is for pages that are shown to who is signed in");
  return state.session;
}

/** The timeout of an attempt, in milliseconds. Undefined without a session. */
export function useDeliveryTimeoutMs(): number | undefined {
  const { state } = useSessionAccess();
  return state.is === "in" ? state.deliveryTimeoutMs : undefined;
}

/** The customer whose key is signed in with; undefined for a key of the operator. */
export function useOwnCustomer(): string | undefined {
  return useSession().apiKey?.customer;
}

/** Whether a key sees and may grant only a part: that of its installed app or customer. */
export function isLimited(key: Pick<ApiKey, "installedApplicationId" | "customer"> | undefined): boolean {
  return key?.installedApplicationId !== undefined || key?.customer !== undefined;
}

/** Whether the key that is signed in with is limited to an installed app or a customer. */
export function useIsLimited(): boolean {
  return isLimited(useSession().apiKey);
}

/** Whether who is signed in may do what needs a permission. What they may not do is not shown. */
export function useMay(permission: PermissionName): boolean {
  const { state } = useSessionAccess();
  if (state.is !== "in") return false;
  return (state.session.apiKey?.permissions ?? []).some((each) => permissionName(each) === permission);
}
