/** Settings, read once at start. */
export { clientAddress } from "./address.ts";
export { basePathOf } from "./base-path.ts";
export {
  type Config,
  type DeliveryConfig,
  type DeploymentConfig,
  type DispatchConfig,
  deliversInItself,
  exportsMetrics,
  type LimitsConfig,
  type NoticeMailConfig,
  readConfig,
} from "./config.ts";
export { ConfigError } from "./config-error.ts";
export { explain } from "./explain.ts";
export { readSecret, withSecretFiles } from "./secret-files.ts";
