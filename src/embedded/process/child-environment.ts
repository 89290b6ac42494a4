/** What a server of ours needs from our environment. Nothing else is passed on: the rest may hold secrets. */
const KEPT = ["PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "SystemRoot", "USERPROFILE", "APPDATA"];

/** What a downloader must not see. It does need the rest: proxies, certificates, pip's own settings. */
const WITHHELD = /^(DATABASE_URL|ADMIN_KEY|SECRET_KEY(_PREVIOUS)?|TLS_(CERT|KEY)|TEMPORAL_.*|PG.*)$/;

/** The environment of a database or Temporal server: fixed language and time zone, none of our settings. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const kept = KEPT.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]]));
  return { ...Object.fromEntries(kept), LC_ALL: "C", LANG: "C", TZ: "UTC" };
}

/** The environment of a downloader: ours without the service's secrets, and `extra`. */
export function downloadEnvironment(extra: Record<string, string> = {}): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !WITHHELD.test(name));
  return { ...Object.fromEntries(kept), ...extra };
}
