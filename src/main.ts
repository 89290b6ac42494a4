import { DOCS_PATH } from "./api/openapi/docs-pages.ts";
import { startApi } from "./api/server.ts";
import { type Config, readConfig } from "./config.ts";
import { budgetWarning, readConnectionBudget } from "./db/connection-budget.ts";
import { openDatabase } from "./db/database.ts";
import { untilAnswered } from "./db/faults.ts";
import { migrate } from "./db/migrate.ts";
import { type Announcer, createAnnouncer } from "./db/queue/announce.ts";
import { createSecretBox } from "./db/secret-box.ts";
import { createAddressGuard } from "./delivery/address-guard.ts";
import { createDeliveryEngine } from "./delivery/engine.ts";
import { createTargetRules } from "./delivery/target-url.ts";
import { startEmbeddedParts } from "./dev/embedded-parts.ts";
import { findSettingsPage } from "./dev/page-build.ts";
import type { Progress } from "./dev/progress.ts";
import { explain } from "./explain.ts";
import { ensureFirstAdmin } from "./first-admin.ts";
import { findSecretKey } from "./instance-secrets.ts";
import { createLogger } from "./logger.ts";
import { checkSecretKey, keepSealed } from "./secret-keys.ts";
import { untilToldToStop } from "./shutdown.ts";
import { temporalTarget } from "./temporal/connection.ts";
import { createDispatchTrigger, type DispatchTrigger } from "./temporal/dispatch-now.ts";
import { workflowLinks } from "./temporal/links.ts";
import { type TemporalNames, temporalNames } from "./temporal/names.ts";
import { installRuntime } from "./temporal/runtime.ts";
import { type DeliveryWorker, startDeliveryWorker, type WorkerOptions } from "./temporal/worker.ts";

/** A running service. */
export interface Service {
  /** Address of REST, Connect and gRPC-Web. */
  url: string;
  httpPort: number;
  /** Null when TLS puts gRPC on the HTTP port. */
  grpcPort: number | null;
  databaseUrl: string;
  temporalUiUrl: string | undefined;
  /** Whether the settings page is served at `url`. */
  hasPage: boolean;
  /** Where the first administrator's key was written, when one was made. */
  adminKeyFile: string | undefined;
  /** Ends everything in order: what is in flight first, the embedded database last. */
  stop(): Promise<void>;
}

/** What tests and the demo set beside the configuration. */
export interface ServiceOverrides {
  progress?: Progress;
  names?: TemporalNames;
  workflowBundle?: NonNullable<WorkerOptions["workflowBundle"]>;
  environment?: NodeJS.ProcessEnv;
}

/** Logged at start: the variable is usually left over from a trial. */
const UNVERIFIED_TLS =
  "NODE_TLS_REJECT_UNAUTHORIZED=0 does not apply to deliveries: receivers' certificates are verified. It does apply to other TLS connections of this process, such as the database's. Unset it, and name a private authority with NODE_EXTRA_CA_CERTS";

/** Starts the roles that the configuration names, on the parts it names or on embedded ones. */
export async function startService(config: Config, overrides: ServiceOverrides = {}): Promise<Service> {
  const { progress = () => {}, names = temporalNames(), environment = process.env } = overrides;
  const log = createLogger(config.logLevel);
  const stopping = new AbortController();
  if (environment.NODE_TLS_REJECT_UNAUTHORIZED === "0") log.warn(UNVERIFIED_TLS);
  const stops: (() => Promise<unknown>)[] = [];
  async function stop(): Promise<void> {
    stopping.abort();
    for (const end of stops.splice(0).reverse()) await end();
  }

  try {
    // Beside the rest: where it has to be built, that takes longer than anything else does.
    const page = config.role === "worker" ? undefined : findSettingsPage(progress);
    const embedded = await startEmbeddedParts(config, environment, progress);
    stops.push(embedded.stop);

    const databaseUrl = config.database.url ?? (embedded.databaseUrl as string);
    const db = openDatabase(databaseUrl, { max: config.database.poolSize });
    stops.push(() => db.destroy());
    await untilAnswered(() => migrate(databaseUrl, config.dispatch.retentionDays), {
      onFirstFault: (err) => log.warn({ err }, "waiting for the database"),
    });

    const { poolSize } = config.database;
    const budget = budgetWarning(await readConnectionBudget(db, poolSize), poolSize);
    if (budget) log.warn(budget);

    const secretKey = await findSecretKey(config.secretKey, config.dataDir);
    const secrets = createSecretBox(secretKey, config.previousSecretKeys);
    await checkSecretKey(db, secrets);
    stops.push(keepSealed(db, secrets, { log, repeat: config.previousSecretKeys.length > 0 }));
    const adminKeyFile = await ensureFirstAdmin(db, config);

    const target = temporalTarget(environment, embedded.temporalAddress);
    let dispatch: DispatchTrigger | undefined;
    const knowsTemporal = config.temporal.external || embedded.temporalAddress !== undefined;
    if (knowsTemporal && config.role !== "worker") {
      dispatch = createDispatchTrigger(target, names, log);
      stops.push(dispatch.close);
    }
    let announcer: Announcer | undefined;
    if (config.dispatch.onPublish && config.role !== "worker") {
      announcer = createAnnouncer(databaseUrl, log);
      stops.push(announcer.close);
    }
    const readiness: (() => Promise<string[]>)[] = [];
    const api = await startApi(
      {
        db,
        secrets,
        log,
        limits: config.limits,
        retentionDays: config.dispatch.retentionDays,
        ...(dispatch ? { dispatchNow: dispatch.trigger } : {}),
        ...(announcer ? { onQueued: announcer.announce } : {}),
        workflowUrl: workflowLinks(config.temporal.uiUrl ?? embedded.temporalUiUrl, target.namespace),
        targets: createTargetRules(
          createAddressGuard(config.delivery.allowedNetworks, { allowedPorts: config.delivery.allowedPorts }),
        ),
        readiness: async () => (await Promise.all(readiness.map((check) => check()))).flat(),
      },
      { ...config, services: config.role !== "worker", page: await page },
    );
    stops.push(() => api.stop());

    if (config.role !== "api") {
      progress("starting the delivery worker");
      const engine = createDeliveryEngine({
        db,
        databaseUrl,
        secrets,
        log,
        ...config,
        stopping: stopping.signal,
      });
      stops.push(() => engine.close());
      let worker: DeliveryWorker | undefined;
      readiness.push(async () => worker?.unready() ?? ["the delivery worker is starting"]);
      worker = await startDeliveryWorker({ target, names, engine, log, ...config, ...overrides });
      stops.push(worker.stop);
    }

    const temporalUiUrl = config.temporal.uiUrl ?? embedded.temporalUiUrl;
    return {
      url: api.url,
      httpPort: api.httpPort,
      grpcPort: api.grpcPort,
      databaseUrl,
      temporalUiUrl,
      hasPage: (await page) !== undefined,
      adminKeyFile,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** `npm start`. */
async function main(): Promise<void> {
  const config = readConfig(process.env);
  const progress: Progress = (line) => console.log(`  ${line}`);
  installRuntime(createLogger(config.logLevel));
  console.log("Webhook service");
  const service = await startService(config, { progress });
  // Whoever reads that it is ready may stop it at once.
  const told = untilToldToStop();
  console.log(describe(service, config));
  await told;
  console.log("stopping; what is in flight is finished first");
  await service.stop();
}

/** Where everything is, for the person who has just started it. */
function describe(service: Service, config: Config): string {
  return [
    `ready (role: ${config.role})`,
    config.role === "worker" ? `  health       ${service.url}/readyz` : `  API          ${service.url}`,
    ...(config.role === "worker" ? [] : [`  API docs     ${service.url}${DOCS_PATH}`]),
    ...(service.hasPage ? [`  settings     ${service.url}/`] : []),
    ...(service.grpcPort === null || config.role === "worker"
      ? []
      : [`  gRPC         localhost:${service.grpcPort}`]),
    ...(service.temporalUiUrl ? [`  Temporal UI  ${service.temporalUiUrl}`] : []),
    ...(service.adminKeyFile ? [`  admin key    in ${service.adminKeyFile}`] : []),
  ].join("\n");
}

if (import.meta.main) {
  main().then(
    () => process.exit(0),
    (error: unknown) => {
      console.error(explain("The service could not start", error));
      process.exit(1);
    },
  );
}
