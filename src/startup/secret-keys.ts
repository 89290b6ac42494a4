import type { Logger } from "pino";
import type { Db } from "../db/database.ts";
import { replaceSetting, settingOrNew } from "../db/settings.ts";
import type { SecretBox } from "../db/webhooks/secret-box.ts";
import { type Resealing, resealSecrets } from "../db/webhooks/secret-resealing.ts";

/** The setting, sealed as secrets are, that tells whether a key is this database's. */
const CHECK = "secret-key-check";
/** While there are previous keys: a process that has them the other way round may seal under one of them still. */
const REPEAT_MS = 10 * 60_000;
/** Webhooks named in one line of the log. */
const MOST_NAMED = 20;

/**
 * Makes sure that one of the box's keys is the one this database's secrets were sealed with; the first key it ever
 * sees is.
 *
 * @throws Error telling what to do; without this check, deliveries would fail one by one
 */
export async function checkSecretKey(db: Db, box: SecretBox): Promise<void> {
  const check = await settingOrNew(db, CHECK, box.seal(CHECK, CHECK).toString("base64"));
  try {
    box.open(Buffer.from(check, "base64"), CHECK);
  } catch (cause) {
    throw new Error(
      "SECRET_KEY is not the one this database's signing secrets were sealed with, nor is one of SECRET_KEY_PREVIOUS; set that one again, in every process, or add it to SECRET_KEY_PREVIOUS",
      { cause },
    );
  }
}

/**
 * Seals everything anew that is sealed under a previous key or without its webhook's id, the check value last: once it needs no previous key,
 * neither does anything else.
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
 * Runs `resealAll` beside the service and says in the log how it ended; again every ten minutes when told.
 *
 * @returns how to end it
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
      log.warn({ err }, "signing secrets could not be looked through");
    }
    if (repeat && !stopping.signal.aborted) {
      timer = setTimeout(() => {
        underWay = pass();
      }, REPEAT_MS).unref();
    }
  }

  function report({ resealed, unopenable }: Resealing): void {
    if (unopenable.length > 0) {
      log.error(
        { webhooks: unopenable.slice(0, MOST_NAMED).map(String), count: unopenable.length },
        "signing secrets open with neither SECRET_KEY nor SECRET_KEY_PREVIOUS, or were stored for another webhook, and deliveries of their webhooks fail: add the key they were sealed with to SECRET_KEY_PREVIOUS, or make new secrets with RotateWebhookSecret",
      );
    } else if (repeat || resealed > 0) {
      log.info({ resealed }, "every signing secret is sealed under SECRET_KEY");
    }
  }

  let underWay = pass();
  return async () => {
    stopping.abort();
    clearTimeout(timer);
    await underWay;
  };
}
