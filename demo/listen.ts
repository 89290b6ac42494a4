/**
 * `npm run receiver`: a local HTTPS receiver for trying the service. Prints each delivery, verifies its signature,
 * and responds as the path of the webhook's URL requests.
 */

import { X509Certificate } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { parseArgs, styleText } from "node:util";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { Webhook } from "standardwebhooks";
import { type Webhook as RegisteredWebhook, WebhookService } from "../gen/webhook/v1/webhook_pb.ts";
import { ADMIN_KEY_FILE } from "../src/app/instance-secrets.ts";
import { explain } from "../src/config/index.ts";
import { ensureDataDir, readSecretFile } from "../src/lib/dev-servers/index.ts";
import { untilToldToStop } from "../src/lib/process/index.ts";
import { type Certificate, createLocalAuthority } from "./certificates.ts";
import { line, shortId, showArrival } from "./output.ts";
import { type ReceivedRequest, type Reply, startReceiver } from "./receiver.ts";

const HELP = `npm run receiver -- [options]

Starts an HTTPS receiver on this machine, prints the deliveries it gets and checks their signatures.

  --port PORT      the port to listen on; default 8443, 0 for any free one
  --secret SECRET  a signing secret (whsec_…) to check signatures with; may be repeated. By default the receiver
                   asks the service for the secrets of its webhooks, with the key in DATA_DIR/admin-key
  --service URL    the address of the service; default http://localhost:8080
  --certificate    only makes the certificate and its key, for a receiver of your own, and prints where they are
  --help           prints this

The path of a webhook's URL decides the answer:

  /status/503      that status, always
  /fail-first/2    503 to the first two attempts of each delivery, then 200
  /delay/3000      200 after so many milliseconds
  anything else    200`;

const DATA_DIR = process.env.DATA_DIR || ".data";
/** The minimum remaining validity of a certificate, in milliseconds. A certificate that expires earlier is renewed. */
const MIN_VALIDITY_MS = 86_400_000;
/** The maximum delay of a response, in milliseconds. */
const MAX_DELAY_MS = 600_000;

const reply: Reply = async (request) => {
  const [, rule, value] = /^\/(status|fail-first|delay)\/(\d+)/.exec(request.path) ?? [];
  const number = Number(value);
  if (rule === "status" && number >= 200 && number <= 599) return number;
  if (rule === "fail-first" && request.attempt <= number) return 503;
  if (rule === "delay") await wait(Math.min(number, MAX_DELAY_MS));
  return 200;
};

/** The receiver's certificate, stored so that the service need not be restarted with the receiver. */
async function certificate(folder: string): Promise<{ own: Certificate; authorityFile: string }> {
  const authorityFile = path.join(folder, "ca.pem");
  const files = { cert: path.join(folder, "cert.pem"), key: path.join(folder, "key.pem") };
  const kept = await Promise.all([
    readFile(files.cert, "utf8"),
    readFile(files.key, "utf8"),
    readFile(authorityFile),
  ]).catch(() => undefined);
  if (kept) {
    const [cert, key] = kept;
    if (Date.parse(new X509Certificate(cert).validTo) - Date.now() > MIN_VALIDITY_MS) {
      return { own: { cert, key }, authorityFile };
    }
  }
  const authority = await createLocalAuthority();
  const own = await authority.issue(["localhost", "127.0.0.1"]);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await writeFile(files.cert, own.cert);
  await writeFile(files.key, own.key, { mode: 0o600 });
  await writeFile(authorityFile, authority.cert);
  return { own, authorityFile };
}

/** Signing secrets of the service's webhooks for this receiver; empty if the service is not available. */
async function secretsOf(serviceUrl: string, port: number): Promise<string[]> {
  const key = await readSecretFile(path.join(DATA_DIR, ADMIN_KEY_FILE));
  if (key === null) return [];
  const client = createClient(
    WebhookService,
    createConnectTransport({ httpVersion: "1.1", baseUrl: serviceUrl }),
  );
  const options = { headers: { "X-Service-Key": key }, timeoutMs: 5_000 };
  const ours: RegisteredWebhook[] = [];
  let pageToken = "";
  do {
    const page = await client.listWebhooks({ pageToken, allCustomers: true }, options);
    ours.push(...page.webhooks.filter(({ url }) => new URL(url).port === String(port)));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return Promise.all(
    ours.map(async ({ id }) => (await client.getWebhookSecret({ webhookId: id }, options)).secret),
  );
}

function isSigned(request: ReceivedRequest, secrets: Iterable<string>): boolean {
  return [...secrets].some((secret) => {
    try {
      new Webhook(secret).verify(request.body, request.headers as Record<string, string>);
      return true;
    } catch {
      return false;
    }
  });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      port: { type: "string", default: "8443" },
      secret: { type: "string", multiple: true, default: [] },
      service: { type: "string", default: "http://localhost:8080" },
      certificate: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return;
  }
  const secrets = new Set(values.secret);

  async function checked(request: ReceivedRequest, port: number): Promise<string> {
    if (isSigned(request, secrets)) return styleText("green", "signature valid");
    // Read for each delivery, because webhooks may be registered and secrets rotated meanwhile.
    const found = await secretsOf(values.service, port).catch(() => []);
    for (const secret of found) secrets.add(secret);
    if (isSigned(request, secrets)) return styleText("green", "signature valid");
    return secrets.size === 0
      ? "signature not checked: no secret known, see --help"
      : styleText("red", "SIGNATURE INVALID");
  }

  // Before any folder in it, with the mode that the service needs.
  await ensureDataDir(DATA_DIR);
  const { own, authorityFile } = await certificate(path.join(DATA_DIR, "receiver"));
  if (values.certificate) {
    const [cert, key] = ["cert.pem", "key.pem"].map((file) => path.join(DATA_DIR, "receiver", file));
    console.log(`TLS_CERT=${cert} TLS_KEY=${key}`);
    return;
  }
  const receiver = await startReceiver(
    own,
    async (request, response) => {
      const told = checked(request, receiver.port);
      const status = await reply(request, response);
      showArrival("the receiver", request, status as number, request.attempt === 1);
      line(`    ${shortId(String(request.headers["x-service-webhook-id"]))} ${await told}`);
      return status as number;
    },
    Number(values.port),
  );
  console.log(`The receiver listens on ${receiver.url}. Ctrl-C stops it.`);
  console.log(
    "Start the service in another terminal, so that it trusts this receiver and may reach this machine:\n",
  );
  console.log(
    `  NODE_EXTRA_CA_CERTS=${authorityFile} DELIVERY_ALLOWED_NETWORKS=127.0.0.0/8,::1/128 DISPATCH_ON_PUBLISH=true npm start\n`,
  );
  console.log(`Then register ${receiver.url}/hooks. Other paths fail on purpose: npm run receiver -- --help`);
  await untilToldToStop();
  await receiver.close();
}

main().then(
  // Delayed responses and the check whether npm has ended would keep the process alive.
  () => process.exit(0),
  (error: unknown) => {
    console.error(explain("Starting the receiver failed", error));
    process.exit(1);
  },
);
