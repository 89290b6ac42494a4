import { ConfigError } from "./config-error.ts";
import type { Environment } from "./variables.ts";

/**
 * Checks the rules that concern several variables at once.
 *
 * @param others what is wrong beside these
 * @throws ConfigError that names every broken rule
 */
export function checkTogether(
  env: Environment,
  externalTemporal: boolean,
  others: readonly string[] = [],
): void {
  const isOnlyOne = (one: unknown, other: unknown) => Boolean(one) !== Boolean(other);
  const ofMails = [env.SMTP_URL, env.SMTP_FROM, env.NOTICE_EMAILS[0]].filter(Boolean).length;
  /** By what an error says: whether the rule is broken. */
  const rules: Record<string, boolean> = {
    "only one of TLS_CERT and TLS_KEY is set: set both to the paths of PEM files, or neither": isOnlyOne(
      env.TLS_CERT,
      env.TLS_KEY,
    ),
    "only one of TEMPORAL_DEPLOYMENT_NAME and TEMPORAL_WORKER_BUILD_ID is set: the workers are this build of this deployment; set both, or neither":
      isOnlyOne(env.TEMPORAL_DEPLOYMENT_NAME, env.TEMPORAL_WORKER_BUILD_ID),
    "DATABASE_URL is missing: DATABASE_DIRECT_URL is a second address of the same database; set both, or neither":
      !env.DATABASE_URL && env.DATABASE_DIRECT_URL !== undefined,
    "DATABASE_URL is missing: DATABASE_READ_URL is the address of its replica; set both, or neither":
      !env.DATABASE_URL && env.DATABASE_READ_URL !== undefined,
    "SECRET_KEY is missing: an external database requires the same key in every process; generate one with `openssl rand -base64 32`":
      !env.SECRET_KEY && env.DATABASE_URL !== undefined,
    [`DATABASE_URL is missing: ROLE=${env.ROLE} requires a database shared with other processes; the embedded one cannot be shared`]:
      !env.DATABASE_URL && env.ROLE !== "all",
    "TEMPORAL_ADDRESS is missing: ROLE=worker requires a Temporal shared with other processes; the embedded one cannot be shared":
      !externalTemporal && env.ROLE === "worker",
    "DELIVERY_PROCESSES: 0 is allowed with ROLE=all only, where the API's process delivers; set it to at least 1 with ROLE=worker":
      env.DELIVERY_PROCESSES === 0 && env.ROLE === "worker",
    "DELIVERY_PROXY is missing: with DELIVERY_PROXY_DNS=remote, the proxy looks up host names; set DELIVERY_PROXY, or remove DELIVERY_PROXY_DNS":
      !env.DELIVERY_PROXY && env.DELIVERY_PROXY_DNS === "remote",
    "only some of SMTP_URL, SMTP_FROM and NOTICE_EMAILS are set: set all three to e-mail notices, or none":
      ofMails !== 0 && ofMails !== 3,
  };
  const broken = Object.keys(rules).filter((rule) => rules[rule]);
  const wrong = [...new Set(others), ...samePorts(env), ...broken];
  if (wrong.length > 0) throw new ConfigError(wrong.join("\n"));
}

/** The rules that the ports break: each listener of the process needs a different one. 0 selects a free port. */
function samePorts(env: Environment): string[] {
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
