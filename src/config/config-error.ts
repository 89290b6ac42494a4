/** Thrown for invalid settings. The message names each variable and the allowed values. */
export class ConfigError extends Error {
  override name = "ConfigError";
}
