import type { Socket } from "node:net";
import ipaddr from "ipaddr.js";
import type { ProxyAddress } from "../../config/values.ts";
import { ProxyRefusedError, ProxyUnavailableError } from "./proxy-error.ts";

/*
 * SOCKS5 (RFC 1928) with user and password (RFC 1929). Written here because
 * its errors must say whether the proxy or one receiver is at fault, and must not contain the credentials.
 */

const VERSION = 5;
const PASSWORD_VERSION = 1;
const METHOD = { none: 0, password: 2 };
const CONNECT = 1;
const ADDRESS_TYPE = { ipv4: 1, name: 3, ipv6: 4 };
const ADDRESS_BYTES: Record<number, number> = { [ADDRESS_TYPE.ipv4]: 4, [ADDRESS_TYPE.ipv6]: 16 };
const PORT_BYTES = 2;

/** Replies other than 0, success. */
const REFUSALS: Record<number, ProxyRefusedError["message"]> = {
  1: "it opened no connection (SOCKS reply 1, general failure)",
  2: "it refuses connections to this receiver (SOCKS reply 2, not allowed)",
  3: "it cannot reach the receiver (SOCKS reply 3, network unreachable)",
  4: "it cannot reach the receiver (SOCKS reply 4, host unreachable)",
  5: "it cannot reach the receiver (SOCKS reply 5, connection refused)",
  6: "it cannot reach the receiver (SOCKS reply 6, TTL expired)",
  7: "it does not support connections (SOCKS reply 7)",
  8: "it does not support the type of the receiver's address (SOCKS reply 8)",
};
const UNREACHABLE = new Set([3, 4, 5, 6]);
const NOT_ALLOWED = 2;

/**
 * Authenticates over a new connection to the proxy.
 *
 * @throws ProxyUnavailableError, or the socket's error
 */
export async function greetSocks5(socket: Socket, credentials: ProxyAddress["credentials"]): Promise<void> {
  const method = credentials ? METHOD.password : METHOD.none;
  socket.write(Buffer.from([VERSION, 1, method]));
  const [version, chosen] = await read(socket, 2);
  if (version !== VERSION) throw notSocks();
  if (chosen !== method) {
    throw new ProxyUnavailableError(
      credentials
        ? "it does not accept a user and password; remove them from DELIVERY_PROXY"
        : "it demands credentials; add a user and password to DELIVERY_PROXY",
    );
  }
  if (!credentials) return;
  const [username, password] = [Buffer.from(credentials.username), Buffer.from(credentials.password)];
  socket.write(
    Buffer.concat([
      Buffer.from([PASSWORD_VERSION, username.length]),
      username,
      Buffer.from([password.length]),
      password,
    ]),
  );
  const [, status] = await read(socket, 2);
  if (status !== 0) {
    throw new ProxyUnavailableError(
      "it demands other credentials (SOCKS5); check the user and password of DELIVERY_PROXY",
    );
  }
}

/**
 * Requests a tunnel, after `greetSocks5`.
 *
 * @throws ProxyRefusedError, ProxyUnavailableError, or the socket's error
 */
export async function requestSocks5(socket: Socket, address: string, port: number): Promise<void> {
  const bytes = ipaddr.parse(address).toByteArray();
  const type = bytes.length === 4 ? ADDRESS_TYPE.ipv4 : ADDRESS_TYPE.ipv6;
  socket.write(Buffer.from([VERSION, CONNECT, 0, type, ...bytes, port >> 8, port & 0xff]));
  const [version, reply = 1, , boundType = 0] = await read(socket, 4);
  if (version !== VERSION) throw notSocks();
  if (reply !== 0) {
    const reason = REFUSALS[reply] ?? `it opened no connection (SOCKS reply ${reply})`;
    throw UNREACHABLE.has(reply)
      ? new ProxyRefusedError(reason, "host")
      : new ProxyRefusedError(reason, "proxy", reply !== NOT_ALLOWED);
  }
  // The rest of the reply, which nothing uses.
  const length = boundType === ADDRESS_TYPE.name ? (await read(socket, 1))[0] : ADDRESS_BYTES[boundType];
  if (length === undefined) throw notSocks();
  await read(socket, length + PORT_BYTES);
}

function notSocks(): ProxyUnavailableError {
  return new ProxyUnavailableError("its answer is not SOCKS5; check the scheme and port of DELIVERY_PROXY");
}

/** Reads exactly this number of bytes. Later bytes stay in the socket. */
function read(socket: Socket, bytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const onReadable = () => {
      const found: Buffer | null = socket.read(bytes);
      // At the end of the stream, `read` returns what is left.
      if (found?.length === bytes) end(() => resolve(found));
    };
    const onError = (error: Error) => end(() => reject(error));
    const onClose = () => end(() => reject(Object.assign(new Error("closed"), { code: "ECONNRESET" })));
    const end = (work: () => void) => {
      socket.off("readable", onReadable).off("error", onError).off("end", onClose).off("close", onClose);
      work();
    };
    socket.on("readable", onReadable).on("error", onError).on("end", onClose).on("close", onClose);
    onReadable();
  });
}
