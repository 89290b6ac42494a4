import { type Client, isGrpcServiceError } from "@temporalio/client";
import type { Logger } from "pino";
import type { DeploymentConfig } from "../../config/index.ts";
import { STATUS_CODES } from "../../contract/errors.ts";

/** The statuses with which Temporal says that it has no worker deployments, or that this client may not use them. */
const REFUSALS: readonly number[] = [STATUS_CODES.PERMISSION_DENIED, STATUS_CODES.UNIMPLEMENTED];

/** The reason until a worker of the deployment has polled. */
export const unknownDeployment = (name: string) => `Temporal does not know the worker deployment ${name} yet`;

/**
 * Makes the version the current one of its deployment if the deployment has none: without, Temporal would give its workers
 * nothing. Never replaces a current version, which is the operator's decision.
 *
 * @returns the reason why workers of the version execute no workflows, with the command that makes it the current one. Null if it
 *   is the current one, or if Temporal does not tell
 * @throws if Temporal does not respond
 */
export async function whyNotCurrent(
  client: Client,
  { name, buildId }: DeploymentConfig,
  log: Logger,
): Promise<string | null> {
  const deployment = { namespace: client.options.namespace, deploymentName: name };
  const command = `temporal worker deployment set-current-version --namespace ${deployment.namespace} --deployment-name ${name} --build-id ${buildId}`;
  let reason: string | null = null;
  try {
    const { workerDeploymentInfo, conflictToken } =
      await client.workflowService.describeWorkerDeployment(deployment);
    const current = workerDeploymentInfo?.routingConfig?.currentDeploymentVersion?.buildId;
    if (current === buildId) return null;
    reason = `the current version of the worker deployment ${name} is ${current ?? "not set"}, and this worker's is ${buildId}; to make it the current one, run: ${command}`;
    if (current) return reason;
    const first = { ...deployment, buildId, conflictToken, identity: "webhook-service" };
    await client.workflowService.setWorkerDeploymentCurrentVersion(first);
    log.info(
      { deployment: name, buildId },
      "this worker's version is the first current one of its deployment",
    );
    return null;
  } catch (error) {
    if (!isGrpcServiceError(error)) throw error;
    if (error.code === STATUS_CODES.NOT_FOUND) return unknownDeployment(name);
    if (!REFUSALS.includes(error.code)) throw error;
    if (reason === null)
      log.warn(
        { deployment: name, buildId, reason: error.details },
        `reading the current version of a worker deployment failed; if it has none yet, run: ${command}`,
      );
    return reason;
  }
}
