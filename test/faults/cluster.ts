import { afterAll, afterEach } from "vitest";
import { type Reply, startReceiver } from "../../demo/receiver.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { type LedgerReply, startLedger } from "./ledger.ts";
import {
  type FaultParts,
  type OwnFaultParts,
  register,
  startFaultParts,
  startOwnFaultParts,
} from "./parts.ts";
import { createPublisher } from "./publisher.ts";

/** A service of several processes, and its receivers. */
export type Cluster = Awaited<ReturnType<typeof startClusterOn<FaultParts>>>;
/** A cluster on servers of its own: any of it can be killed. */
export type OwnCluster = Awaited<ReturnType<typeof startClusterOn<OwnFaultParts>>>;

/** The number of a process's last lines that a failed test prints. */
const LOG_LINES = 20;

/** Environment variables of every process, or how they are made once the parts run. */
type SettingsFor<Parts> = Record<string, string> | ((parts: Parts) => Promise<Record<string, string>>);

/** Starts an API on the run's servers until the end of the file. */
export async function useCluster(settingsFor: SettingsFor<FaultParts> = {}): Promise<Cluster> {
  const cluster = await startCluster(settingsFor);
  afterEach(({ task }) => {
    if (task.result?.state === "fail") console.log(cluster.logs());
  });
  afterAll(() => cluster.end());
  return cluster;
}

/** Starts an API on the run's servers. */
export async function startCluster(settingsFor: SettingsFor<FaultParts> = {}): Promise<Cluster> {
  return startClusterOn(await startFaultParts(), settingsFor);
}

/** Starts servers of a test file's own and an API. */
export async function startOwnCluster(settingsFor: SettingsFor<OwnFaultParts> = {}): Promise<OwnCluster> {
  return startClusterOn(await startOwnFaultParts(), settingsFor);
}

async function startClusterOn<Parts extends FaultParts>(parts: Parts, settingsFor: SettingsFor<Parts>) {
  const settings = typeof settingsFor === "function" ? await settingsFor(parts) : settingsFor;
  /** Those that are still starting too: a test may end amid it. */
  const processes: Promise<ServiceProcess>[] = [];
  const receivers: { close(): Promise<void> }[] = [];

  function start(own: Record<string, string>): Promise<ServiceProcess> {
    const starting = startServiceProcess({ ...parts.environment, ...settings, ...own });
    processes.push(starting);
    starting.then((service) => started.push(service)).catch(() => {});
    return starting;
  }
  const started: ServiceProcess[] = [];
  async function opened<T extends { close(): Promise<void> }>(starting: Promise<T>): Promise<T> {
    const receiver = await starting;
    receivers.push(receiver);
    return receiver;
  }
  async function end(): Promise<void> {
    await Promise.allSettled(processes);
    // Nothing that they would still do is looked at, and none has delivery processes, which would outlive it.
    await Promise.all(started.map((service) => service.end("SIGKILL")));
    await Promise.all(receivers.map((receiver) => receiver.close()));
    await parts.end();
  }

  let api = await start({ ROLE: "api" }).catch(async (error: unknown) => {
    await end();
    throw error;
  });
  let apis = [api];
  let workers: ServiceProcess[] = [];
  return {
    ...parts,
    /** The API that was started last. */
    get api() {
      return api;
    },
    /** Publishes to the APIs that run, in turn. */
    publisher: createPublisher(() => {
      apis = apis.filter((each) => each === api || isRunning(each));
      apis.push(apis.shift() as ServiceProcess);
      return (apis.find(isRunning) ?? api).grpcPort;
    }, parts.adminKey),
    /** Starts another API, on another port. */
    async startApi() {
      api = await start({ ROLE: "api" });
      apis.push(api);
      return api;
    },
    /** @param own environment variables over those of the cluster; the last that start decide for the schedule */
    startWorker: (own?: Record<string, string>) => start({ ...own, ROLE: "worker" }),
    /** So many workers with the cluster's settings: those that run and were not started by `startWorker`, and further ones. */
    async workers(count: number): Promise<ServiceProcess[]> {
      workers = workers.filter(isRunning);
      const missing = Array.from({ length: Math.max(0, count - workers.length) }, () =>
        start({ ROLE: "worker" }),
      );
      workers.push(...(await Promise.all(missing)));
      await Promise.all(workers.splice(count).map((worker) => worker.end("SIGTERM")));
      return [...workers];
    },
    /** What its processes have printed, the last lines of each. */
    logs: () =>
      started
        .map(({ pid, printed }) => `process ${pid}:\n${printed().split("\n").slice(-LOG_LINES).join("\n")}`)
        .join("\n"),
    /** Starts a receiver that keeps account of every request. */
    ledger: (delayMs: number, reply?: LedgerReply) => opened(startLedger(parts.certificate, delayMs, reply)),
    /** Starts a receiver that keeps the requests themselves. */
    receiver: (reply: Reply) => opened(startReceiver(parts.certificate, reply)),
    /** Registers a webhook, for OrderDispatched unless told otherwise. */
    register: (url: string, process?: WebhookProcess) => register(api.grpcPort, parts.adminKey, url, process),
    end,
  };
}

const isRunning = ({ process: { exitCode, signalCode } }: ServiceProcess) =>
  exitCode === null && signalCode === null;
