import { readFileSync } from "node:fs";
import { ConfigError } from "./config-error.ts";

/** Secrets that a file can hold instead of the variable: `<name>_FILE` is its path. Temporal's API key is another one. */
export const SECRETS_IN_FILES = [
  "DATABASE_URL",
  "DATABASE_DIRECT_URL",
  "DATABASE_READ_URL",
  "SECRET_KEY",
  "SECRET_KEY_PREVIOUS",
  "ADMIN_KEY",
  "DELIVERY_PROXY",
  "SMTP_URL",
] as const;

/**
 * The environment with the contents of the files that `<name>_FILE` names, without surrounding white space.
 *
 * @param names SECRETS_IN_FILES unless given
 * @throws ConfigError if a variable and its file are both set, or a file cannot be read or is empty
 */
export function withSecretFiles(
  environment: NodeJS.ProcessEnv,
  names: readonly string[] = SECRETS_IN_FILES,
): NodeJS.ProcessEnv {
  const read: Record<string, string> = {};
  const wrong: string[] = [];
  for (const name of names) {
    const path = environment[`${name}_FILE`];
    if (!path) continue;
    try {
      if (environment[name]) throw new ConfigError(`${name} and ${name}_FILE are both set; set one of them`);
      read[name] = readSecret(`${name}_FILE`, path);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      wrong.push(error.message);
    }
  }
  if (wrong.length > 0) throw new ConfigError(wrong.join("\n"));
  return { ...environment, ...read };
}

/**
 * The content of a file with a secret, without surrounding white space.
 *
 * @param variable the setting with its path, for errors
 * @throws ConfigError if the file cannot be read or is empty
 */
export function readSecret(variable: string, path: string): string {
  const secret = readText(variable, path).trim();
  if (secret === "") throw new ConfigError(`${variable}: the file ${path} is empty; write the value into it`);
  return secret;
}

/** The content of a file that a setting names. @throws ConfigError if the file cannot be read */
export function readText(variable: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new ConfigError(
      `${variable}: cannot read the file ${path} (${(error as NodeJS.ErrnoException).code}); name a file that this user can read`,
    );
  }
}
