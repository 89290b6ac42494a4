/** Variables passed to the embedded servers. No others are passed, because they may contain secrets. */
const PASSED_VARIABLES = [
  "PATH",
  "HOME",
  "TMPDIR",
  "TEMP",
  "TMP",
  "SYSTEMROOT",
  "SystemRoot",
  "USERPROFILE",
  "APPDATA",
];

/** Variables hidden from downloaders. They need the others: proxies, certificates, pip's settings. */
const SECRET_VARIABLES =
  /^(DATABASE_((DIRECT|READ)_)?URL|ADMIN_KEY|SECRET_KEY(_PREVIOUS)?|DELIVERY_PROXY|SMTP_URL|TLS_(CERT|KEY)|TEMPORAL_.*|PG.*)$/;

/**
 * The environment of a database or Temporal server: fixed language and time zone, without the service's settings. Temporal's server
 * would otherwise tell its makers its version and ask them for a newer one.
 */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const kept = PASSED_VARIABLES.flatMap((name) =>
    process.env[name] === undefined ? [] : [[name, process.env[name]]],
  );
  return {
    ...Object.fromEntries(kept),
    LC_ALL: "C",
    LANG: "C",
    TZ: "UTC",
    TEMPORAL_VERSION_CHECK_DISABLED: "true",
  };
}

/** The environment of a downloader: this process's without the service's secrets, plus `extra`. */
export function downloadEnvironment(extra: Record<string, string> = {}): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !SECRET_VARIABLES.test(name));
  return { ...Object.fromEntries(kept), ...extra };
}
