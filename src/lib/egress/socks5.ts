import { isIP, type Socket } from "node:net";
import ipaddr from "ipaddr.js";
import type { ProxyAddress } from "./proxy-address.ts";
import { ProxyRefusedError, ProxyUnavailableError } from "./proxy-error.ts";

/*
 * SOCKS5 (RFC 1928) with user and password (RFC 1929). Not a library, because the
 * errors must say whether the proxy or one target is at fault, and must not contain the credentials.
 */

const VERSION = 5;
const PASSWORD_VERSION = 1;
const METHOD = { none: 0, password: 2 };
const CONNECT = 1;
const ADDRESS_TYPE = { ipv4: 1, name: 3, ipv6: 4 };
/** The maximum length of a name, in bytes. */
const MAX_NAME_BYTES = 255;
/** The length of an address in bytes, by address type. A name is not listed: it begins with a byte for its length. */
const ADDRESS_BYTES: Record<number, number> = { 1: 4, 4: 16 };
const PORT_BYTES = 2;

/** The meanings of the reply codes. The index is the code. */
const REPLIES = [
  "success",
  "general failure",
  "not allowed",
  "network unreachable",
  "host unreachable",
  "connection refused",
  "TTL expired",
  "command not supported",
  "address type not supported",
];
const NOT_ALLOWED = 2;
const UNREACHABLE = [3, 4, 5, 6];

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
  socket.write(Buffer.from([PASSWORD_VERSION, username.length, ...username, password.length, ...password]));
  const [, status] = await read(socket, 2);
  if (status !== 0) {
    throw new ProxyUnavailableError(
      "it demands other credentials (SOCKS5); check the user and password of DELIVERY_PROXY",
    );
  }
}

/**
 * Requests a tunnel to a host, by address or name, after `greetSocks5`.
 *
 * @throws ProxyRefusedError, ProxyUnavailableError, or the socket's error
 */
export async function requestSocks5(socket: Socket, host: string, port: number): Promise<void> {
  socket.write(Buffer.from([VERSION, CONNECT, 0, ...encodedHost(host), port >> 8, port & 0xff]));
  const [version, reply = 1, , boundType = 0] = await read(socket, 4);
  if (version !== VERSION) throw notSocks();
  if (reply !== 0) throw refusal(reply);
  // Discards the rest of the reply, an address of the proxy, so that the next byte read belongs to the tunnel.
  const bytesLeft = ADDRESS_BYTES[boundType] ?? (await read(socket, 1)).readUInt8();
  await read(socket, bytesLeft + PORT_BYTES);
}

/** The address type, then the address or the name. */
function encodedHost(host: string): number[] {
  if (isIP(host) !== 0) {
    const bytes = ipaddr.parse(host).toByteArray();
    return [bytes.length === 4 ? ADDRESS_TYPE.ipv4 : ADDRESS_TYPE.ipv6, ...bytes];
  }
  const name = Buffer.from(host);
  if (name.length > MAX_NAME_BYTES)
    throw new ProxyRefusedError(
      `the host name has ${name.length} bytes; SOCKS5 allows ${MAX_NAME_BYTES}`,
      "proxy",
      false,
      "use a shorter name",
    );
  return [ADDRESS_TYPE.name, name.length, ...name];
}

function refusal(reply: number): ProxyRefusedError {
  const meaning = REPLIES[reply];
  const words = `(SOCKS reply ${reply}${meaning ? `, ${meaning}` : ""})`;
  if (UNREACHABLE.includes(reply))
    return new ProxyRefusedError(`it cannot reach the receiver ${words}`, "host");
  if (reply === NOT_ALLOWED) return new ProxyRefusedError(`it refuses connections to this receiver ${words}`);
  return new ProxyRefusedError(`it opened no connection ${words}`, "proxy", true);
}

function notSocks(): ProxyUnavailableError {
  return new ProxyUnavailableError("its answer is not SOCKS5; check the scheme and port of DELIVERY_PROXY");
}

/** Reads exactly this number of bytes. Later bytes stay in the socket. */
async function read(socket: Socket, bytes: number): Promise<Buffer> {
  for (;;) {
    const found: Buffer | null = socket.read(bytes);
    if (found?.length === bytes) return found;
    // At the end of the stream, `read` returns the remaining bytes, even if they are fewer.
    if (found || socket.destroyed || socket.readableEnded)
      throw socket.errored ?? Object.assign(new Error("closed"), { code: "ECONNRESET" });
    const { promise, resolve } = Promise.withResolvers<void>();
    socket.once("readable", resolve).once("end", resolve).once("close", resolve);
    await promise;
    socket.off("readable", resolve).off("end", resolve).off("close", resolve);
  }
}
