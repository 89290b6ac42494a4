import { loadClientConnectConfig } from "@temporalio/envconfig";

/** The address of Temporal with TLS, API key and namespace. */
export type TemporalTarget = ReturnType<typeof loadClientConnectConfig> & { namespace: string };

/**
 * Reads Temporal's own environment variables and profile files (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE,
 * TEMPORAL_API_KEY, TEMPORAL_TLS_…, TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE), for clusters and Temporal Cloud.
 *
 * @param embeddedAddress the address of an embedded Temporal, which overrides all of them
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
