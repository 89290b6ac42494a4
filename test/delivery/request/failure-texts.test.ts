import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import tls from "node:tls";
import ipaddr from "ipaddr.js";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Certificate, createLocalAuthority, type LocalAuthority } from "../../../demo/certificates.ts";
import { startReceiver } from "../../../demo/receiver.ts";
import type { Network } from "../../../src/config/values.ts";
import type { Connections } from "../../../src/delivery/http/connections.ts";
import { createHttpClient } from "../../../src/delivery/http/http-client.ts";
import { createAddressGuard } from "../../../src/delivery/request/address-guard.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import { post } from "../../../src/delivery/request/post.ts";

let authority: LocalAuthority;
let certificate: Certificate;
let client: Connections;
beforeAll(async () => {
  authority = await createLocalAuthority();
  certificate = await authority.issue(["localhost"]);
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), authority.cert]);
  client = createHttpClient(createAddressGuard([ipaddr.parseCIDR("127.0.0.0/8") as Network]), 1_000);
});
afterAll(() => client.destroy());

const TIMEOUT_MS = 20_000;

function send(origin: string): Promise<Outcome> {
  const request = { origin, path: "/", headers: [], body: "{}" };
  return new Promise((outcome) => post(client, request, TIMEOUT_MS, outcome));
}

async function sendTo(server: Server): Promise<Outcome> {
  // The errors of connections that the client ends.
  server.on("tlsClientError", () => {});
  server.on("connection", (socket: Socket) => socket.on("error", () => {}));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return send(`https://localhost:${(server.address() as AddressInfo).port}`);
}

/** A server that reads the start of the TLS handshake and writes bytes of its own. */
const answering = (bytes: Buffer | string) =>
  createServer((socket) => socket.once("data", () => socket.write(bytes)));

/** A server that reads a request over TLS and writes bytes of its own. */
const answeringOverTls = (bytes: string) =>
  tls.createServer(certificate, (socket) => socket.once("data", () => socket.write(bytes)));

/** The ServerHello of a server from before TLS 1.3, which chooses its own highest version. */
function serverHello(minor: number): Buffer {
  const hello = Buffer.concat([Buffer.from([3, minor]), Buffer.alloc(32), Buffer.from([0, 0, 0x2f, 0])]);
  const handshake = Buffer.concat([Buffer.from([2, 0, 0, hello.length]), hello]);
  return Buffer.concat([Buffer.from([22, 3, minor, 0, handshake.length]), handshake]);
}

const alert = (description: number) => Buffer.from([21, 3, 3, 0, 2, 2, description]);
const NOT_TLS = "this port does not speak TLS; it may speak plain HTTP (ERR_SSL_WRONG_VERSION_NUMBER)";
const OLD_TLS = "the receiver only supports TLS 1.1 or older; TLS 1.2 or 1.3 is required";
const old = (maxVersion: tls.SecureVersion) =>
  tls.createServer({ ...certificate, minVersion: "TLSv1", maxVersion, ciphers: "ALL:@SECLEVEL=0" });

test.each<[string, () => Server, string]>([
  ["a port that speaks plain HTTP", () => createHttpServer((_, response) => response.end()), NOT_TLS],
  [
    "a port that speaks another protocol",
    () => createServer((socket) => socket.end("220 mail\r\n")),
    NOT_TLS,
  ],
  ["a receiver with TLS 1.0 only", () => old("TLSv1"), `${OLD_TLS} (ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION)`],
  ["a receiver with TLS 1.1 only", () => old("TLSv1.1"), `${OLD_TLS} (ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION)`],
  [
    "a receiver that chooses TLS 1.0",
    () => answering(serverHello(1)),
    `${OLD_TLS} (ERR_SSL_UNSUPPORTED_PROTOCOL)`,
  ],
  [
    "a receiver without a common cipher suite",
    () => tls.createServer({ ...certificate, maxVersion: "TLSv1.2", ciphers: "NULL-SHA:@SECLEVEL=0" }),
    "TLS handshake refused: the receiver shares no cipher suite with this service, or demands a client certificate (ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE)",
  ],
  [
    "a receiver that demands a client certificate",
    () => answering(alert(116)),
    "the receiver demands a client certificate, or refuses the webhook's; set it with SetWebhookRequestSettings (ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED)",
  ],
  [
    "a receiver without a certificate for the name",
    () => answering(alert(112)),
    "TLS handshake refused: the receiver has no certificate for this host name (ERR_SSL_TLSV1_UNRECOGNIZED_NAME)",
  ],
  [
    "another TLS error",
    () => answering(alert(50)),
    "TLS error: tlsv1 alert decode error (ERR_SSL_TLSV1_ALERT_DECODE_ERROR)",
  ],
  [
    "a receiver that hangs up amid the handshake",
    () => createServer((socket) => socket.once("data", () => socket.end())),
    "the receiver closed the connection during the TLS handshake (ECONNRESET)",
  ],
  [
    "a receiver that sends an unrequested 100 Continue",
    () => answeringOverTls("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "the receiver sent 100 Continue, which the request did not ask for (UND_ERR_SOCKET)",
  ],
  [
    "a receiver that switches to another protocol",
    () =>
      answeringOverTls(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
      ),
    "the receiver sent 101 Switching Protocols, which the request did not ask for (UND_ERR_SOCKET)",
  ],
])("an attempt says what is wrong with %s", async (_, server, error) => {
  expect(await sendTo(server())).toMatchObject({ delivered: false, status: null, error });
});

test.each([
  [302, {}, "redirects are not followed"],
  [308, { "retry-after": "9" }, "redirects are not followed"],
  [429, { "retry-after": "120" }, "Retry-After: 120 s"],
  [503, { "retry-after": "999999" }, "Retry-After: 3600 s, the maximum"],
  [429, { "retry-after": "soon" }, null],
  [429, {}, null],
  [200, { "retry-after": "120" }, null],
])("status %i with %o is recorded with what it does not say itself: %s", async (status, headers, error) => {
  const receiver = await startReceiver(certificate, (_request, response) => {
    response.writeHead(status, headers).end();
    return undefined;
  });
  onTestFinished(() => receiver.close());
  expect(await send(receiver.url)).toMatchObject({ delivered: status === 200, status, error });
});
