import { createHash } from "node:crypto";
import type { LookupAddress } from "node:dns";
import { isIP, type Socket } from "node:net";
import { connect, createSecureContext, type SecureContext, type TLSSocket } from "node:tls";
import { LRUCache } from "lru-cache";
import { dialling } from "./families.ts";

/**
 * The maximum size of the cached sessions of a client, in bytes: enough for thousands of hosts. A resumed handshake takes a third less
 * of the thread's time than a full one. The limit is in bytes because a session contains the receiver's certificate.
 */
const MAX_SESSION_BYTES = 8 * 1_024 * 1_024;
/** The size of the read buffer, in bytes: that of the largest TLS record. */
const READ_BUFFER_BYTES = 16_384;
/** The delay of the first TCP keep-alive probe, in milliseconds. */
const PROBE_DELAY_MS = 60_000;

/** The certificates of a connection, beside the public authorities. */
export interface TlsCredentials {
  /** PEM: the client certificate, then intermediate ones, and its private key, not encrypted. Null for none. */
  client: { certificate: string; key: string } | null;
  /** PEM: the certificates of the only authorities that are trusted; null for the public ones. */
  authorities: string | null;
}

/** The certificates of a webhook's connections. Only requests of the same identity share connections. */
export interface TlsIdentity {
  /** Differs if anything differs. Contains no secret. */
  readonly id: string;
  readonly settings: TlsCredentials;
}

/** The identity of a webhook's TLS settings; undefined without any. */
export function tlsIdentity(settings: TlsCredentials | null): TlsIdentity | undefined {
  if (settings === null) return undefined;
  return { id: createHash("sha256").update(JSON.stringify(settings)).digest("base64"), settings };
}

/** Creates a cache of sessions to resume, by TLS identity and host name. */
export function createTlsSessions() {
  return new LRUCache<string, Buffer>({
    maxSize: MAX_SESSION_BYTES,
    sizeCalculation: ({ length }) => length,
  });
}

/** What the TLS connections of one identity share: certificates, and sessions to resume. HTTP/1.1 only. */
export class TlsContext {
  /** Shared: otherwise each connection reads the certificates of the authorities again. */
  readonly #secureContext: SecureContext;
  readonly #id: string;
  readonly #sessions: LRUCache<string, Buffer>;

  /**
   * @param identity its authorities replace the public ones; host names are verified in any case. Undefined for the public ones
   * @param sessions the cache that all identities of a client share. Defaults to a new one
   */
  constructor(identity?: TlsIdentity, sessions = createTlsSessions()) {
    const { client, authorities } = identity?.settings ?? { client: null, authorities: null };
    this.#id = identity?.id ?? "";
    this.#sessions = sessions;
    this.#secureContext = createSecureContext({
      ...(client ? { cert: client.certificate, key: client.key } : {}),
      ...(authorities === null ? {} : { ca: authorities }),
    });
  }

  /**
   * Starts connecting.
   *
   * @param host the name or address to verify
   * @param addresses the addresses to dial
   * @param tunnel an open connection that leads to the host. Undefined to dial
   */
  connect(host: string, port: number, addresses: readonly LookupAddress[], tunnel?: Socket): TLSSocket {
    // Of this identity only: a resumed session authenticates as the identity that opened it.
    const name = `${this.#id} ${host}`;
    const session = this.#sessions.get(name);
    const socket = connect({
      ...(tunnel ? { socket: tunnel } : {}),
      ...dialling(addresses),
      host,
      port,
      servername: isIP(host) === 0 ? host : "",
      secureContext: this.#secureContext,
      ...(session ? { session } : {}),
      // The default follows NODE_TLS_REJECT_UNAUTHORIZED, which may be set for another part of the process.
      rejectUnauthorized: true,
      ALPNProtocols: ["http/1.1"],
      ...{ highWaterMark: READ_BUFFER_BYTES },
    });
    socket.on("session", (next) => this.#sessions.set(name, next));
    // Whoever awaits the connection listens as well. Later errors must not end the process before the client listens.
    socket.on("error", () => {});
    return socket.setNoDelay(true).setKeepAlive(true, PROBE_DELAY_MS);
  }
}
