import { randomBytes } from "node:crypto";
import { type Scope, webhookIn } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { count, type Db, rows, run } from "../lib/pg/index.ts";
import { raiseRevisions } from "./revisions.ts";
import { type SecretBox, UnopenableError, webhookSecretContext } from "./secret-box.ts";

/** Signs a body as of a moment. Throws UnopenableError if a secret cannot be decrypted. */
export type Sign = (
  secrets: readonly SealedSecret[],
  deliveryId: string,
  at: Date,
  body: string,
) => { "webhook-timestamp": string; "webhook-signature": string };

/** A stored signing secret, or the private key of a key pair. */
export interface SealedSecret {
  /** The webhook that it is sealed for. */
  webhookId: bigint;
  sealed: Buffer;
  /** The time at which it stops signing; null for the newest. */
  expires: Date | null;
  /** Set for a private ed25519 key, which signs `v1a`. A secret signs `v1`. */
  keyPair?: true;
}

/** A valid signing secret. */
export interface WebhookSecret {
  /** 32 bytes. */
  secret: Buffer;
  /** The time at which it stops signing; null for the newest. */
  expires: Date | null;
}

/** The columns of a webhook that hold its secrets and key pairs. */
export const SECRET_COLUMNS = `secret, old_secrets as "oldSecrets", old_secrets_expire as "oldSecretsExpire",
  key_pairs as "keyPairs", key_pairs_expire as "keyPairsExpire"`;

/** The values of `SECRET_COLUMNS`. */
export interface SecretsRow {
  secret: Buffer;
  oldSecrets: Buffer[];
  oldSecretsExpire: Date[];
  /** Newest first. */
  keyPairs: Buffer[];
  keyPairsExpire: (Date | null)[];
}

/** The grace period of an old secret or key pair, in hours. */
export const GRACE_PERIOD_HOURS = 24;
/** The maximum number of valid secrets of a webhook, and of its key pairs. */
const MAX_SECRETS = 5;
const SECRET_BYTES = 32;

/** Generates a signing secret, sealed for its webhook. */
export function newSealedSecret(box: SecretBox, webhookId: bigint): Buffer {
  return box.seal(randomBytes(SECRET_BYTES), webhookSecretContext(webhookId));
}

/** All that signs the requests of a webhook: its secrets, then its key pairs, each newest first, as stored. */
export function sealedSecretsOf(webhookId: bigint, row: SecretsRow): SealedSecret[] {
  const secrets = secretsOf(webhookId, row);
  for (const [index, sealed] of row.keyPairs.entries()) {
    secrets.push({ webhookId, sealed, expires: row.keyPairsExpire[index] ?? null, keyPair: true });
  }
  return secrets;
}

/** The secrets of a row, newest first, including expired ones. Callers must check the expiry. */
function secretsOf(webhookId: bigint, { secret, oldSecrets, oldSecretsExpire }: SecretsRow): SealedSecret[] {
  const old = oldSecrets.map((sealed, index) => ({
    webhookId,
    sealed,
    expires: oldSecretsExpire[index] as Date,
  }));
  return [{ webhookId, sealed: secret, expires: null }, ...old];
}

/**
 * All valid signing secrets of a live webhook, newest first; null if the scope has no such webhook.
 *
 * @throws DomainError FAILED_PRECONDITION if no key of this process decrypts one of them
 */
export async function readWebhookSecrets(
  db: Db,
  box: SecretBox,
  scope: Scope,
  id: bigint,
): Promise<WebhookSecret[] | null> {
  const inScope = webhookIn(scope, "webhooks");
  const [row] = await rows<SecretsRow & { now: Date }>(
    db,
    `select ${SECRET_COLUMNS}, now() as now from webhooks
      where id = :id::bigint and deleted is null and ${inScope.sql}`,
    { id, ...inScope.bindings },
  );
  if (!row) return null;
  try {
    return validAt(row.now, id, row).map(({ sealed, expires }) => ({
      secret: box.open(sealed, webhookSecretContext(id)),
      expires,
    }));
  } catch (error) {
    if (!(error instanceof UnopenableError)) throw error;
    throw new DomainError(
      "FAILED_PRECONDITION",
      `a signing secret of webhook ${id} can be decrypted with neither SECRET_KEY nor SECRET_KEY_PREVIOUS, or was stored for another webhook; give the service the key it was encrypted with, or create a new secret with RotateWebhookSecret`,
    );
  }
}

/**
 * Gives live webhooks a new signing secret, the same for all. The previous one stays valid for a day, unless old secrets are
 * revoked. A secret that can no longer be decrypted is dropped, so that rotating repairs its webhook. Workers sign with the new
 * secret within a second.
 *
 * @param ids a webhook, or all of an endpoint
 * @param revokeOld whether to revoke all old secrets immediately
 * @throws DomainError FAILED_PRECONDITION if one has the maximum number of valid secrets
 */
export function rotateWebhookSecret(
  db: Db,
  box: SecretBox,
  ids: readonly bigint[],
  revokeOld = false,
): Promise<void> {
  const secret = randomBytes(SECRET_BYTES);
  return db.transaction(async (trx) => {
    const found = await rows<SecretsRow & { id: bigint; process: number; now: Date; endOfOld: Date }>(
      trx,
      `select id, process, ${SECRET_COLUMNS}, now() as now, now() + make_interval(hours => :hours::int) as "endOfOld"
        from webhooks where id = any(:ids::bigint[]) and deleted is null order by id for no key update`,
      { ids, hours: GRACE_PERIOD_HOURS },
    );
    for (const row of found) await replaceSecret(trx, box, secret, row, revokeOld);
    await raiseRevisions(
      trx,
      found.map(({ process }) => process),
    );
  });
}

async function replaceSecret(
  trx: Db,
  box: SecretBox,
  secret: Buffer,
  row: SecretsRow & { id: bigint; now: Date; endOfOld: Date },
  revokeOld: boolean,
): Promise<void> {
  const { id } = row;
  const usable = (revokeOld ? [] : validAt(row.now, id, row)).filter((each) => opens(box, each));
  const old = keptBesideNew(id, usable, row.endOfOld, "signing secrets", "revoke_old_secrets");
  await run(
    trx,
    trx("webhooks")
      .where({ id })
      .update({
        secret: box.seal(secret, webhookSecretContext(id)),
        old_secrets: old.map(({ sealed }) => sealed),
        old_secrets_expire: old.map(({ expires }) => expires),
        modified: trx.fn.now(),
        revision: trx.raw("revision + 1"),
      }),
  );
}

/**
 * The old secrets or key pairs that stay valid beside a new one: the newest of them until `endOfOld`.
 *
 * @param what what they are, in the plural
 * @param revoke the field of the request that revokes them
 * @throws DomainError FAILED_PRECONDITION if the maximum number exists
 */
export function keptBesideNew(
  webhookId: bigint,
  old: readonly Pick<SealedSecret, "sealed" | "expires">[],
  endOfOld: Date,
  what: string,
  revoke: string,
): { sealed: Buffer; expires: Date }[] {
  const kept = old.map(({ sealed, expires }) => ({ sealed, expires: expires ?? endOfOld }));
  const oldest = kept.at(-1);
  if (oldest && kept.length >= MAX_SECRETS) {
    throw new DomainError(
      "FAILED_PRECONDITION",
      `webhook ${webhookId} has ${MAX_SECRETS} valid ${what}, the maximum; rotate again after ${oldest.expires.toISOString()}, when the oldest expires, or with ${revoke}, which revokes all old ones immediately`,
      { reason: "TOO_MANY_SECRETS" },
    );
  }
  return kept;
}

/** Deletes expired secrets and key pairs of webhooks. */
export async function forgetExpiredSecrets(db: Db): Promise<void> {
  // Valid secrets come first. All values are read from the row being written, so that a concurrent rotation is not
  // lost.
  await count(
    db,
    `update webhooks w set
        old_secrets = old_secrets[1:(select count(*)::int from unnest(w.old_secrets_expire) e where e > now())],
        old_secrets_expire =
          old_secrets_expire[1:(select count(*)::int from unnest(w.old_secrets_expire) e where e > now())]
      where old_secrets_expire[cardinality(old_secrets_expire)] <= now()`,
  );
  const validPairs = "(select count(*)::int from unnest(w.key_pairs_expire) e where e is null or e > now())";
  await count(
    db,
    `update webhooks w set key_pairs = key_pairs[1:${validPairs}], key_pairs_expire = key_pairs_expire[1:${validPairs}]
      where key_pairs_expire[cardinality(key_pairs_expire)] <= now()`,
  );
}

function validAt(now: Date, webhookId: bigint, row: SecretsRow): SealedSecret[] {
  return secretsOf(webhookId, row).filter(({ expires }) => expires === null || expires > now);
}

function opens(box: SecretBox, { webhookId, sealed }: SealedSecret): boolean {
  try {
    box.open(sealed, webhookSecretContext(webhookId));
    return true;
  } catch (error) {
    if (error instanceof UnopenableError) return false;
    throw error;
  }
}
