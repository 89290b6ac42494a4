import { createServer as createHttpServer } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Certificate } from "../../../demo/certificates.ts";

/** A proxy on 127.0.0.1. */
export interface TestProxy {
  port: number;
  /** The targets of the tunnels that were requested, as `address:port`. */
  targets: string[];
  /** The connections to it that are open. */
  open: ReadonlySet<Socket>;
  /** Closes the port and every connection. */
  close(): Promise<void>;
}

export interface TestProxyOptions {
  /** As `user:password`. Undefined to let everybody in. */
  credentials?: string;
  /** The port to listen on. Defaults to a free one. */
  port?: number;
  /** What a tunnel is refused with: an HTTP status or a SOCKS reply, or no answer. Defaults to none. */
  refuse?: (target: string) => number | "silent" | "closed" | undefined;
  /** The proxy's own address as SOCKS replies have it: its type and bytes. Defaults to 127.0.0.1. */
  bound?: number[];
}

/** Starts a proxy with HTTP CONNECT. @param options.certificate makes it one over TLS */
export async function startConnectProxy(
  options: TestProxyOptions & { certificate?: Certificate } = {},
): Promise<TestProxy> {
  const { certificate, credentials, refuse } = options;
  const targets: string[] = [];
  const server = certificate ? createHttpsServer(certificate) : createHttpServer();
  server.on("connect", (request, socket: Duplex) => {
    const target = request.url as string;
    socket.on("error", () => socket.destroy());
    const answer = (status: number, headers = "") =>
      socket.end(`HTTP/1.1 ${status} Refused\r\n${headers}Content-Length: 7\r\n\r\nrefused`);
    const expected = credentials && `Basic ${Buffer.from(credentials).toString("base64")}`;
    if (expected && request.headers["proxy-authorization"] !== expected) {
      answer(407, 'Proxy-Authenticate: Basic realm="egress"\r\n');
      return;
    }
    targets.push(target);
    const refused = refuse?.(target);
    if (refused === "closed") socket.destroy();
    else if (typeof refused === "number") answer(refused);
    else if (refused === undefined)
      tunnel(socket, target, (isOpen) => {
        if (isOpen) socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
        else answer(502);
      });
  });
  return listen(server, targets, options.port);
}

/** Starts a SOCKS5 proxy (RFC 1928, RFC 1929). */
export async function startSocksProxy(options: TestProxyOptions = {}): Promise<TestProxy> {
  const { credentials, port, refuse, bound = [1, 127, 0, 0, 1] } = options;
  const targets: string[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    void converse(socket).catch(() => socket.destroy());
  });
  async function converse(socket: Socket): Promise<unknown> {
    const next = (bytes: number) => read(socket, bytes);
    const [, methods = 0] = await next(2);
    const offered = await next(methods);
    const wanted = credentials ? 2 : 0;
    if (!offered.includes(wanted)) return socket.end(Buffer.from([5, 255]));
    socket.write(Buffer.from([5, wanted]));
    if (credentials) {
      const [, length = 0] = await next(2);
      const user = await next(length);
      const [passwordLength = 0] = await next(1);
      if (`${user}:${await next(passwordLength)}` !== credentials) return socket.end(Buffer.from([1, 1]));
      socket.write(Buffer.from([1, 0]));
    }
    const [, , , type] = await next(4);
    const addressBy: Record<number, () => Promise<string>> = {
      1: async () => (await next(4)).join("."),
      3: async () => (await next((await next(1)).readUInt8())).toString(),
      4: async () => (await next(16)).toString("hex"),
    };
    const address = await addressBy[type as number]?.();
    const target = `${address}:${(await next(2)).readUInt16BE()}`;
    targets.push(target);
    const reply = (code: number) => socket.write(Buffer.from([5, code, 0, ...bound, 0, 0]));
    const refused = refuse?.(target);
    if (refused === "closed") socket.destroy();
    else if (typeof refused === "number") reply(refused);
    else if (refused === undefined) tunnel(socket, target, (isOpen) => reply(isOpen ? 0 : 5));
    return undefined;
  }
  return listen(server, targets, port);
}

/** Reads so many bytes. */
async function read(socket: Socket, bytes: number): Promise<Buffer> {
  for (;;) {
    const found: Buffer | null = bytes === 0 ? Buffer.alloc(0) : socket.read(bytes);
    if (found) return found;
    if (socket.readableEnded || socket.destroyed) throw new Error("closed");
    await new Promise((resolve) => {
      socket.once("readable", resolve).once("close", resolve);
    });
  }
}

function tunnel(socket: Duplex, target: string, opened: (isOpen: boolean) => void): void {
  const [host = "", port] = target.split(":");
  let isOpen = false;
  // Only the proxy knows where internal names lead.
  const out = connect({ host: host.endsWith(".internal") ? "127.0.0.1" : host, port: Number(port) }, () => {
    isOpen = true;
    opened(true);
    socket.pipe(out).pipe(socket);
  });
  out.on("error", () => {
    if (isOpen) socket.destroy();
    else opened(false);
  });
  socket.on("close", () => out.destroy());
  out.on("close", () => isOpen && socket.destroy());
}

async function listen(server: Server, targets: string[], port = 0): Promise<TestProxy> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    targets,
    open: sockets,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
