import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { open, symlink } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { findTemporalCli } from "../../src/lib/dev-servers/temporal/temporal-cli.ts";
import { anyPort } from "../support/any-port.ts";
import { ROOT } from "../support/program.ts";
import { type OwnPostgres, startOwnPostgres } from "./own-postgres.ts";

/** Temporal's server and SQL tool, as the images of docker-compose contain them, for `describeWith`. */
export const TEMPORAL_PROGRAMS = ["temporal-server", "temporal-sql-tool"];

const run = promisify(execFile);

/** The services of a Temporal cluster, each of which can run in processes of its own. */
const SERVICES = ["frontend", "history", "matching", "worker"] as const;
type TemporalService = (typeof SERVICES)[number];

/** A Temporal cluster on PostgreSQL, with a process for each of its services. */
export type TemporalCluster = Awaited<ReturnType<typeof startTemporalCluster>>;

/**
 * Starts PostgreSQL and Temporal, configured by the environment variables, scripts and files of docker-compose.yml, and
 * makes the namespace.
 */
export async function startTemporalCluster() {
  const postgres = await startOwnPostgres();
  const { port } = new URL(postgres.url("postgres"));
  const environment: Record<string, string> = {
    DB: "postgres12",
    DB_PORT: port,
    POSTGRES_SEEDS: "127.0.0.1",
    POSTGRES_USER: "postgres",
    POSTGRES_PWD: "not-asked-for",
    BIND_ON_IP: "127.0.0.1",
    DYNAMIC_CONFIG_FILE_PATH: path.join(ROOT, "docker/temporal-dynamic-config.yaml"),
  };
  for (const service of SERVICES) {
    const prefix = service.toUpperCase();
    environment[`${prefix}_GRPC_PORT`] = String(await anyPort());
    environment[`${prefix}_MEMBERSHIP_PORT`] = String(await anyPort());
  }
  environment.FRONTEND_HTTP_PORT = String(await anyPort());
  const address = `127.0.0.1:${environment.FRONTEND_GRPC_PORT}`;
  const running = new Map<TemporalService, ChildProcess>();

  const cluster = {
    /** `host:port` of the frontend. */
    address,
    /** Kills the process of a service. */
    async kill(service: TemporalService) {
      const child = running.get(service);
      running.delete(service);
      if (!child) return;
      child.kill("SIGKILL");
      await once(child, "exit");
    },
    async start(service: TemporalService) {
      const log = await open(path.join(postgres.folder, `${service}.log`), "a");
      const child = spawn("temporal-server", ["start", "--service", service], {
        env: { ...process.env, ...environment },
        stdio: ["ignore", log.fd, log.fd],
      });
      running.set(service, child);
      await once(child, "spawn");
      await log.close();
    },
    async end() {
      for (const service of running.keys()) await cluster.kill(service);
      await postgres.end();
    },
  };
  try {
    await script("temporal-schema.sh", environment);
    for (const service of SERVICES) await cluster.start(service);
    await script("temporal-namespace.sh", { TEMPORAL_ADDRESS: address, PATH: await pathWithCli(postgres) });
  } catch (error) {
    await cluster.end();
    throw error;
  }
  return cluster;
}

/** Runs a script of docker-compose.yml. */
const script = (name: string, environment: Record<string, string>) =>
  run("/bin/sh", [path.join(ROOT, "docker", name)], { env: { ...process.env, ...environment } });

/** PATH with the `temporal` command, which the image of docker-compose contains. */
async function pathWithCli({ folder }: OwnPostgres): Promise<string> {
  const cli = await findTemporalCli(folder, () => {});
  await symlink(cli, path.join(folder, "temporal"));
  return `${folder}:${process.env.PATH}`;
}
