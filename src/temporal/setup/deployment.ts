import { type Client, isGrpcServiceError } from "@temporalio/client";
import type { WorkerOptions } from "@temporalio/worker";
import pRetry, { AbortError } from "p-retry";
import type { Logger } from "pino";
import type { DeploymentConfig } from "../../config/config.ts";
import { STATUS_CODES } from "../../contract/errors.ts";

/** With these, trying again is of no use. */
const REFUSALS: readonly number[] = [STATUS_CODES.PERMISSION_DENIED, STATUS_CODES.UNIMPLEMENTED];

const UNTIL_KNOWN = { retries: Number.POSITIVE_INFINITY, minTimeout: 250, maxTimeout: 5_000 };

/**
 * The options of a worker that executes workflows. Open runs continue on the current version: a worker is replaced
 * sooner than its runs end. Activities need no version: workers of all versions execute those of every run.
 */
export function versioningOptions(
  deployment: DeploymentConfig | undefined,
): Pick<WorkerOptions, "workerDeploymentOptions"> {
  if (!deployment) return {};
  return {
    workerDeploymentOptions: {
      useWorkerVersioning: true,
      version: { deploymentName: deployment.name, buildId: deployment.buildId },
      defaultVersioningBehavior: "AUTO_UPGRADE",
    },
  };
}

const commandOf = (namespace: string, { name, buildId }: DeploymentConfig) =>
  `temporal worker deployment set-current-version --namespace ${namespace} --deployment-name ${name} --build-id ${buildId}`;

/**
 * The reason why workers of the version execute no workflows, with the command that makes the version the current one. Null if
 * it is the current one, or if Temporal does not tell.
 *
 * @throws if Temporal does not respond
 */
export async function whyNotCurrent(
  client: Client,
  namespace: string,
  deployment: DeploymentConfig,
): Promise<string | null> {
  const { name, buildId } = deployment;
  try {
    const { workerDeploymentInfo } = await client.workflowService.describeWorkerDeployment({
      namespace,
      deploymentName: name,
    });
    const current = workerDeploymentInfo?.routingConfig?.currentDeploymentVersion?.buildId;
    if (current === buildId) return null;
    return `the current version of the worker deployment ${name} is ${current ?? "not set"}, and this worker's is ${buildId}; to make it the current one, run: ${commandOf(namespace, deployment)}`;
  } catch (error) {
    if (!isGrpcServiceError(error)) throw error;
    if (REFUSALS.includes(error.code)) return null;
    if (error.code !== STATUS_CODES.NOT_FOUND) throw error;
    return `Temporal does not know the worker deployment ${name} yet`;
  }
}

/**
 * Makes the version the current one of its deployment if the deployment has none: without, Temporal would give its workers
 * nothing. Never replaces a current version, which is the operator's decision, and logs the command instead. Retries
 * until Temporal knows the version, which it does once a worker polls, or the signal aborts. Never rejects.
 */
export async function ensureCurrentVersion(
  client: Client,
  namespace: string,
  deployment: DeploymentConfig | undefined,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  if (!deployment) return;
  const { name, buildId } = deployment;
  const version = { deployment: name, buildId };
  const command = commandOf(namespace, deployment);
  const attempt = async () => {
    const { workerDeploymentInfo, conflictToken } = await client.workflowService.describeWorkerDeployment({
      namespace,
      deploymentName: name,
    });
    const current = workerDeploymentInfo?.routingConfig?.currentDeploymentVersion;
    if (current?.buildId === buildId) return;
    if (current) {
      log.warn(
        { ...version, current: current.buildId },
        `this worker is not of the current version of its deployment and executes no workflows; to replace the current version, run: ${command}`,
      );
      return;
    }
    await client.workflowService.setWorkerDeploymentCurrentVersion({
      namespace,
      deploymentName: name,
      buildId,
      conflictToken,
      identity: "webhook-service",
    });
    log.info(version, "this worker's version is the first current one of its deployment");
  };
  await pRetry(attempt, {
    ...UNTIL_KNOWN,
    signal,
    onFailedAttempt: ({ error }) => {
      if (!isGrpcServiceError(error) || !REFUSALS.includes(error.code)) return;
      log.warn(
        { ...version, reason: error.details },
        `making this worker's version the current one failed; if the deployment has none yet, run: ${command}`,
      );
      throw new AbortError(error);
    },
  }).catch(() => {});
}
