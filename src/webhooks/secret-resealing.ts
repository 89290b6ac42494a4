import { count, type Db, rows } from "../lib/pg/index.ts";
import { requestSettingsContext } from "./request-settings.ts";
import { keyPairContext, type SecretBox, UnopenableError, webhookSecretContext } from "./secret-box.ts";

/** The result of one pass over all signing secrets. */
export interface Resealing {
  /** The number of webhooks with re-encrypted secrets. */
  resealed: number;
  /** Live webhooks with a secret that no key decrypts. */
  unopenable: bigint[];
}

/** The number of webhooks read per query. */
const PAGE_SIZE = 200;

interface Row {
  id: bigint;
  secret: Buffer;
  oldSecrets: Buffer[];
  requestSettings: Buffer | null;
  keyPairs: Buffer[];
  live: boolean;
}

/**
 * Re-encrypts secrets that were sealed with a previous key or without their webhook's id, one webhook at a time. Safe
 * to run in several processes and during rotations: a row is only replaced if it is unchanged since it was read.
 *
 * @param signal stops the pass between two webhooks
 * @throws the abort reason of `signal`
 */
export async function resealSecrets(db: Db, box: SecretBox, signal?: AbortSignal): Promise<Resealing> {
  const done: Resealing = { resealed: 0, unopenable: [] };
  let after = 0n;
  for (;;) {
    const page = await rows<Row>(
      db,
      `select id, secret, old_secrets as "oldSecrets", request_settings as "requestSettings",
          key_pairs as "keyPairs", deleted is null as live
        from webhooks where id > :after::bigint order by id limit ${PAGE_SIZE}`,
      { after },
    );
    if (page.length === 0) return done;
    for (const row of page) {
      signal?.throwIfAborted();
      const outcome = await resealRow(db, box, row);
      // A secret was replaced since it was read: read again from here.
      if (outcome === "changed") break;
      after = row.id;
      if (outcome === "resealed") done.resealed += 1;
      if (outcome === "unopenable" && row.live) done.unopenable.push(row.id);
    }
  }
}

async function resealRow(
  db: Db,
  box: SecretBox,
  row: Row,
): Promise<"resealed" | "current" | "unopenable" | "changed"> {
  let unopenable = false;
  let replaced = false;
  const resealed = (sealed: Buffer, context = webhookSecretContext(row.id)): Buffer => {
    try {
      const anew = box.reseal(sealed, context);
      replaced ||= anew !== null;
      return anew ?? sealed;
    } catch (error) {
      if (!(error instanceof UnopenableError)) throw error;
      unopenable = true;
      return sealed;
    }
  };
  const secret = resealed(row.secret);
  const old = row.oldSecrets.map((sealed) => resealed(sealed));
  const settings = row.requestSettings && resealed(row.requestSettings, requestSettingsContext(row.id));
  const pairs = row.keyPairs.map((sealed) => resealed(sealed, keyPairContext(row.id)));
  if (replaced) {
    const written = await count(
      db,
      `update webhooks set secret = :secret, old_secrets = :old::bytea[], request_settings = :settings::bytea,
          key_pairs = :pairs::bytea[]
        where id = :id::bigint and secret = :wasSecret and old_secrets = :wasOld::bytea[]
          and request_settings is not distinct from :wasSettings::bytea and key_pairs = :wasPairs::bytea[]`,
      {
        id: row.id,
        secret,
        old,
        settings,
        pairs,
        wasSecret: row.secret,
        wasOld: row.oldSecrets,
        wasSettings: row.requestSettings,
        wasPairs: row.keyPairs,
      },
    );
    if (written === 0) return "changed";
  }
  if (unopenable) return "unopenable";
  return replaced ? "resealed" : "current";
}
