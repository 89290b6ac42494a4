import type { Logger } from "pino";
import type { Db } from "../lib/pg/index.ts";
import { replaceSetting, settingOrNew } from "../schema/index.ts";
import { type Resealing, resealSecrets, type SecretBox } from "../webhooks/index.ts";

/** The setting that contains a sealed value, used to check that a key belongs to this database. */
const CHECK = "secret-key-check";
/**
 * The interval between passes while previous keys are configured, in milliseconds: a process with an older
 * configuration may still encrypt with one of them.
 */
const RESEAL_INTERVAL_MS = 10 * 60_000;
/** The maximum number of webhooks named in a log line. */
const MAX_LOGGED_WEBHOOKS = 20;

/**
 * Checks that one of the box's keys has encrypted this database's secrets. The first key used with a database is
 * accepted.
 *
 * @throws Error with the remedy. Without this check, deliveries would fail one by one
 */
export async function checkSecretKey(db: Db, box: SecretBox): Promise<void> {
  const check = await settingOrNew(db, CHECK, box.seal(CHECK, CHECK).toString("base64"));
  try {
    box.open(Buffer.from(check, "base64"), CHECK);
  } catch (cause) {
    throw new Error(
      "SECRET_KEY and SECRET_KEY_PREVIOUS do not contain the key that encrypted this database's signing secrets; set that key again in every process, or add it to SECRET_KEY_PREVIOUS",
      { cause },
    );
  }
}

/**
 * Re-encrypts everything that was sealed with a previous key or without its webhook's id. The check value comes last:
 * once it uses the current key, no previous key is needed.
 */
export async function resealAll(db: Db, box: SecretBox, signal?: AbortSignal): Promise<Resealing> {
  const done = await resealSecrets(db, box, signal);
  if (done.unopenable.length > 0) return done;
  const check = await settingOrNew(db, CHECK, box.seal(CHECK, CHECK).toString("base64"));
  const anew = box.reseal(Buffer.from(check, "base64"), CHECK);
  if (anew) await replaceSetting(db, CHECK, check, anew.toString("base64"));
  return done;
}

/**
 * Runs `resealAll` in the background and logs the result. Repeats every ten minutes if requested.
 *
 * @returns stops it
 */
export function keepSealed(
  db: Db,
  box: SecretBox,
  { log, repeat }: { log: Logger; repeat: boolean },
): () => Promise<void> {
  const stopping = new AbortController();
  let timer: NodeJS.Timeout | undefined;

  async function pass(): Promise<void> {
    try {
      report(await resealAll(db, box, stopping.signal));
    } catch (err) {
      if (stopping.signal.aborted) return;
      log.warn({ err }, "re-encrypting signing secrets failed");
    }
    if (repeat && !stopping.signal.aborted) {
      timer = setTimeout(() => {
        underWay = pass();
      }, RESEAL_INTERVAL_MS).unref();
    }
  }

  function report({ resealed, unopenable }: Resealing): void {
    if (unopenable.length > 0) {
      log.error(
        { webhooks: unopenable.slice(0, MAX_LOGGED_WEBHOOKS).map(String), count: unopenable.length },
        "signing secrets cannot be decrypted with SECRET_KEY or SECRET_KEY_PREVIOUS, or were stored for another webhook; deliveries of these webhooks fail: add the key that encrypted them to SECRET_KEY_PREVIOUS, or create new secrets with RotateWebhookSecret",
      );
    } else if (repeat || resealed > 0) {
      log.info({ resealed }, "all signing secrets are encrypted with SECRET_KEY");
    }
  }

  let underWay = pass();
  return async () => {
    stopping.abort();
    clearTimeout(timer);
    await underWay;
  };
}
