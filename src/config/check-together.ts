import { ConfigError } from "./config-error.ts";

/**
 * Checks the rules that concern several variables at once.
 *
 * @param others what is wrong beside these
 * @throws ConfigError that names every broken rule
 */
export function checkTogether(
  env: {
    ROLE: string;
    HTTP_PORT: number;
    GRPC_PORT: number;
    METRICS_PORT: number | undefined;
    DATABASE_URL: string | undefined;
    DATABASE_DIRECT_URL: string | undefined;
    DATABASE_READ_URL: string | undefined;
    SECRET_KEY: Buffer | undefined;
    TLS_CERT: string | undefined;
    TLS_KEY: string | undefined;
    DELIVERY_PROCESSES: number | undefined;
    DELIVERY_PROXY: object | undefined;
    DELIVERY_PROXY_DNS: string;
    SMTP_URL: string | undefined;
    SMTP_FROM: string | undefined;
    NOTICE_EMAILS: string[];
    TEMPORAL_DEPLOYMENT_NAME: string | undefined;
    TEMPORAL_WORKER_BUILD_ID: string | undefined;
  },
  externalTemporal: boolean,
  others: readonly string[] = [],
): void {
  const wrong = [...new Set(others), ...samePorts(env)];
  if (Boolean(env.TLS_CERT) !== Boolean(env.TLS_KEY)) {
    wrong.push("only one of TLS_CERT and TLS_KEY is set: set both to the paths of PEM files, or neither");
  }
  if (Boolean(env.TEMPORAL_DEPLOYMENT_NAME) !== Boolean(env.TEMPORAL_WORKER_BUILD_ID)) {
    wrong.push(
      "only one of TEMPORAL_DEPLOYMENT_NAME and TEMPORAL_WORKER_BUILD_ID is set: the workers are this build of this deployment; set both, or neither",
    );
  }
  if (env.DATABASE_DIRECT_URL && !env.DATABASE_URL) {
    wrong.push(
      "DATABASE_URL is missing: DATABASE_DIRECT_URL is a second address of the same database; set both, or neither",
    );
  }
  if (env.DATABASE_READ_URL && !env.DATABASE_URL) {
    wrong.push(
      "DATABASE_URL is missing: DATABASE_READ_URL is the address of its replica; set both, or neither",
    );
  }
  if (env.DATABASE_URL && !env.SECRET_KEY) {
    wrong.push(
      "SECRET_KEY is missing: an external database requires the same key in every process; generate one with `openssl rand -base64 32`",
    );
  }
  if (env.ROLE !== "all" && !env.DATABASE_URL) {
    wrong.push(
      `DATABASE_URL is missing: ROLE=${env.ROLE} requires a database shared with other processes; the embedded one cannot be shared`,
    );
  }
  if (env.ROLE === "worker" && !externalTemporal) {
    wrong.push(
      "TEMPORAL_ADDRESS is missing: ROLE=worker requires a Temporal shared with other processes; the embedded one cannot be shared",
    );
  }
  if (env.ROLE === "worker" && env.DELIVERY_PROCESSES === 0) {
    wrong.push(
      "DELIVERY_PROCESSES: 0 is allowed with ROLE=all only, where the API's process delivers; set it to at least 1 with ROLE=worker",
    );
  }
  if (env.DELIVERY_PROXY_DNS === "remote" && !env.DELIVERY_PROXY) {
    wrong.push(
      "DELIVERY_PROXY is missing: with DELIVERY_PROXY_DNS=remote, the proxy looks up host names; set DELIVERY_PROXY, or remove DELIVERY_PROXY_DNS",
    );
  }
  const ofMails = [env.SMTP_URL, env.SMTP_FROM, env.NOTICE_EMAILS[0]].filter(Boolean).length;
  if (ofMails !== 0 && ofMails !== 3) {
    wrong.push(
      "only some of SMTP_URL, SMTP_FROM and NOTICE_EMAILS are set: set all three to e-mail notices, or none",
    );
  }
  if (wrong.length > 0) throw new ConfigError(wrong.join("\n"));
}

/** The rules that the ports break: each listener of the process needs a different one. 0 selects a free port. */
function samePorts(env: {
  ROLE: string;
  TLS_CERT: string | undefined;
  HTTP_PORT: number;
  GRPC_PORT: number;
  METRICS_PORT: number | undefined;
}): string[] {
  const hasGrpcPort = env.ROLE !== "worker" && !env.TLS_CERT;
  const ports = (["HTTP_PORT", "GRPC_PORT", "METRICS_PORT"] as const).filter(
    (name) => env[name] && (name !== "GRPC_PORT" || hasGrpcPort),
  );
  return ports.flatMap((name, n) =>
    ports
      .slice(n + 1)
      .filter((other) => env[other] === env[name])
      .map((other) => `${name} and ${other} are both ${env[name]}: set them to different ports`),
  );
}
