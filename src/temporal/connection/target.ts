import { loadClientConnectConfig } from "@temporalio/envconfig";

/** Where Temporal is: TLS, API key and namespace included. */
export type TemporalTarget = ReturnType<typeof loadClientConnectConfig> & { namespace: string };

/**
 * Temporal's own environment variables and profile files (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY,
 * TEMPORAL_TLS_…, TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE), so that a cluster and Temporal Cloud both work.
 *
 * @param embeddedAddress overrides them all when Temporal is a part of this process
 */
export function temporalTarget(environment: NodeJS.ProcessEnv, embeddedAddress?: string): TemporalTarget {
  if (embeddedAddress !== undefined) {
    return {
      connectionOptions: { address: embeddedAddress },
      namespace: environment.TEMPORAL_NAMESPACE || "default",
    };
  }
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value)) as Record<
    string,
    string
  >;
  const config = loadClientConnectConfig({ overrideEnvVars: given });
  return { ...config, namespace: config.namespace ?? "default" };
}
