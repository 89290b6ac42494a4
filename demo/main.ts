import { once } from "node:events";
import path from "node:path";
import { parseArgs, styleText } from "node:util";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { type Delivery, DeliveryService, DeliveryState } from "../gen/webhook/v1/delivery_pb.ts";
import { type Service, startService } from "../src/app/service.ts";
import { clientAddress, explain, readConfig } from "../src/config/index.ts";
import { processName } from "../src/contract/catalogue.ts";
import { choosePort, readSecretFile } from "../src/lib/dev-servers/index.ts";
import { createLogger, untilToldToStop } from "../src/lib/process/index.ts";
import { installRuntime } from "../src/temporal/native/index.ts";
import { heading, line, shortId, showStarted, showStarting, table } from "./output.ts";
import { startDemoReceivers } from "./receivers.ts";
import { createDemoKeys, forgetEarlierWebhooks, publishEvents, registerWebhooks } from "./steps.ts";

/** Shorter delays than the defaults, so that the demo takes half a minute. */
const PACE = { DISPATCH_INTERVAL: "5s", RETRY_INITIAL_DELAY: "2s", RETRY_BACKOFF_COEFFICIENT: "2" };
/** The timeout of the demo, in milliseconds. */
const TIMEOUT_MS = 120_000;

/** The expected final state and number of attempts of a registration's deliveries. */
interface Expectation {
  state: DeliveryState;
  attempts: number;
}

/**
 * The settings of the demo. All others of the shell are ignored, so that the demo neither uses the database or Temporal of
 * another service, nor sends e-mails, metrics or traces.
 */
async function demoSettings(): Promise<Record<string, string>> {
  const { DATA_DIR, HOST, HTTP_PORT, GRPC_PORT, LOG_LEVEL } = process.env;
  return {
    ...PACE,
    DATA_DIR: path.join(DATA_DIR || ".data", "demo"),
    HOST: HOST ?? "",
    HTTP_PORT: String(await choosePort([Number(HTTP_PORT || 8080)])),
    GRPC_PORT: String(await choosePort([Number(GRPC_PORT || 9090)])),
    DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8,::1/128",
    // Only this process trusts the authority of the demo's receivers.
    DELIVERY_PROCESSES: "0",
    LOG_LEVEL: LOG_LEVEL || "warn",
  };
}

/** Runs the demo until its end or a signal. Resolves with whether every delivery ended as expected. */
async function demo(stayUp: boolean): Promise<boolean> {
  heading("1. The service starts, with an embedded PostgreSQL and Temporal");
  const environment = await demoSettings();
  const config = readConfig(environment);
  installRuntime(createLogger(config.logLevel));
  // Until now there was nothing to stop.
  const stopping = new AbortController();
  void untilToldToStop().then(() => stopping.abort());
  const began = performance.now();
  const service = await startService(config, {
    environment,
    progress: showStarting,
    giveUp: stopping.signal,
  }).catch((error: unknown) => {
    if (!stopping.signal.aborted) throw error;
  });
  if (!service) return stoppedEarly();
  try {
    showStarted(`ready after ${((performance.now() - began) / 1_000).toFixed(1)} s, API on ${service.url}`);
    const grpc = clientAddress(config.host, service.grpcPort as number);
    return await deliverToReceivers(service, grpc, stayUp, stopping.signal);
  } finally {
    await service.stop();
  }
}

/** Starts the receivers, and publishes events to them. Resolves with whether every delivery ended as expected. */
async function deliverToReceivers(
  service: Service,
  grpcAddress: string,
  stayUp: boolean,
  stopping: AbortSignal,
): Promise<boolean> {
  const admin = createConnectTransport({ httpVersion: "1.1", baseUrl: service.url });
  const internal = createGrpcTransport({ baseUrl: `http://${grpcAddress}` });
  line(`The demo dispatches every ${PACE.DISPATCH_INTERVAL} and retries after 2, 4 and 8 seconds;`);
  line("the defaults are every minute, and 1, 5 and 25 minutes.");

  heading("2. Start three local HTTPS receivers");
  const receivers = await startDemoReceivers();
  line(`good        ${receivers.good.url} always answers 200`);
  line(
    `recovering  ${receivers.recovering.url} answers 503 to the first two attempts of a delivery, then 200`,
  );
  line(`failing     ${receivers.failing.url} always answers 500`);

  heading("3. An administrator creates API keys");
  const keys = await createDemoKeys(admin, await adminKeyOf(service.adminKeyFile));
  await forgetEarlierWebhooks(service.url, keys.integrator);

  heading("4. Register webhooks over REST");
  const webhooks = await registerWebhooks(service.url, keys, receivers);
  const expected = new Map<bigint, Expectation>([
    ...webhooks.good.map((id) => [id, { state: DeliveryState.DELIVERED, attempts: 1 }] as const),
    [webhooks.recovering, { state: DeliveryState.DELIVERED, attempts: 3 }],
    [webhooks.failing, { state: DeliveryState.FAILED, attempts: 4 }],
  ]);

  heading("5. Publish three events over gRPC, one of them twice");
  const eventIds = await publishEvents(internal, keys.publisher);

  heading("6. The deliveries arrive; one is shown with its headers and body");
  const deliveries = await untilFinal(admin, keys.integrator, eventIds, stopping);
  if (stopping.aborted) return stoppedEarly();

  heading("7. Final states");
  const wrong = showOutcome(deliveries, expected);

  heading(
    wrong === 0 ? "Every delivery ended as it should" : `${wrong} deliveries did not end as they should`,
  );
  if (stayUp) {
    if (service.hasPage)
      line(`Settings page  ${service.url}/ (sign in with the key in ${service.adminKeyFile})`);
    line(`API docs       ${service.url}/docs`);
    line(`gRPC           ${grpcAddress}`);
    if (service.temporalUiUrl) line(`Temporal UI    ${service.temporalUiUrl}`);
    line("Everything stays up until Ctrl-C.");
    if (!stopping.aborted) await once(stopping, "abort");
  }
  return wrong === 0;
}

function stoppedEarly(): false {
  line("stopped before every delivery ended");
  return false;
}

/** Waits until all deliveries of the events are in a final state, or the demo is stopped. */
async function untilFinal(
  transport: ReturnType<typeof createConnectTransport>,
  key: string,
  eventIds: string[],
  stopping: AbortSignal,
): Promise<Delivery[]> {
  const client = createClient(DeliveryService, transport);
  const until = Date.now() + TIMEOUT_MS;
  for (;;) {
    const found = await Promise.all(
      eventIds.map((eventId) => client.listDeliveries({ eventId }, { headers: { "X-Service-Key": key } })),
    );
    const deliveries = found.flatMap((page) => page.deliveries).reverse();
    const open = deliveries.filter((delivery) => delivery.finished === undefined);
    if (open.length === 0 || Date.now() > until || stopping.aborted) return deliveries;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

/** Prints the table. Returns the number of deliveries that did not end as expected. */
function showOutcome(deliveries: Delivery[], expected: Map<bigint, Expectation>): number {
  let wrong = 0;
  const rows = deliveries.map((delivery) => {
    const expectation = expected.get(delivery.webhookId);
    const right = expectation?.state === delivery.state && expectation.attempts === delivery.attemptCount;
    if (!right) wrong += 1;
    return {
      delivery: shortId(delivery.id),
      event: processName(delivery.webhookProcess),
      url: delivery.url,
      state: (
        Object.entries(DeliveryState).find(([, value]) => value === delivery.state)?.[0] ?? "?"
      ).toLowerCase(),
      attempts: String(delivery.attemptCount),
      "as expected": right ? styleText("green", "yes") : styleText("red", "NO"),
    };
  });
  table(rows);
  return wrong;
}

async function adminKeyOf(file: string | undefined): Promise<string> {
  const key = file === undefined ? null : await readSecretFile(file);
  if (key === null)
    throw new Error(
      "the demo's admin key is missing; delete the demo's folder under DATA_DIR and start again",
    );
  return key;
}

const HELP = `npm run demo -- [--exit]

Starts the service with embedded parts and three receivers, publishes events and prints what happens to their deliveries.

  --exit  ends when every delivery has ended, as without a terminal; 0 means that each ended as expected
  --help  prints this`;

async function start(exitsAnyway: boolean): Promise<boolean> {
  const { values } = parseArgs({
    options: { exit: { type: "boolean", default: exitsAnyway }, help: { type: "boolean", default: false } },
  });
  if (!values.help) return demo(!values.exit);
  console.log(HELP);
  return true;
}

if (import.meta.main) {
  // Without a terminal nobody can press Ctrl-C.
  const exitsAnyway = Boolean(process.env.CI) || !process.stdout.isTTY;
  start(exitsAnyway).then(
    (right) => process.exit(right ? 0 : 1),
    (error: unknown) => {
      console.error(explain("The demo failed", error));
      process.exit(1);
    },
  );
}
