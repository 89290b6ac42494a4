import { randomBytes } from "node:crypto";
import { DomainError } from "../../contract/errors.ts";
import { count, type Db, rows } from "../database.ts";
import { type Scope, webhookIn } from "../scope.ts";
import { type SecretBox, UnopenableError, webhookSecretContext } from "./secret-box.ts";

/** A signing secret as it is stored. */
export interface SealedSecret {
  /** The webhook that it was sealed for. */
  webhookId: bigint;
  sealed: Buffer;
  /** When it stops signing; null for the newest. */
  expires: Date | null;
}

/** A signing secret that is valid now. */
export interface WebhookSecret {
  /** 32 bytes. */
  secret: Buffer;
  /** When it stops signing; null for the newest. */
  expires: Date | null;
}

/** The columns of a webhook that hold its secrets, for whoever reads the row. */
export const SECRET_COLUMNS = `secret, old_secrets as "oldSecrets", old_secrets_expire as "oldSecretsExpire"`;

/** A row's `SECRET_COLUMNS`. */
export interface SecretsRow {
  secret: Buffer;
  oldSecrets: Buffer[];
  oldSecretsExpire: Date[];
}

/** How long a secret signs beside its successors. */
const OLD_SECRET_HOURS = 24;
/** Secrets of a webhook that may be valid at once. */
const MAX_SECRETS = 5;
const SECRET_BYTES = 32;

/** A new signing secret, sealed for its webhook. */
export function newSealedSecret(box: SecretBox, webhookId: bigint): Buffer {
  return box.seal(randomBytes(SECRET_BYTES), webhookSecretContext(webhookId));
}

/** A row's secrets, newest first; expired ones too, which whoever signs leaves out. */
export function sealedSecretsOf(
  webhookId: bigint,
  { secret, oldSecrets, oldSecretsExpire }: SecretsRow,
): SealedSecret[] {
  const old = oldSecrets.map((sealed, index) => ({
    webhookId,
    sealed,
    expires: oldSecretsExpire[index] as Date,
  }));
  return [{ webhookId, sealed: secret, expires: null }, ...old];
}

/**
 * Every secret that signs a live webhook's deliveries now, newest first; null when the scope has no such webhook.
 *
 * @throws DomainError FAILED_PRECONDITION when one of them opens with no key that this process has
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
      `a signing secret of webhook ${id} opens with neither SECRET_KEY nor SECRET_KEY_PREVIOUS, or was stored for another webhook: give the service the key it was sealed with, or make a new secret with RotateWebhookSecret`,
    );
  }
}

/**
 * Gives a live webhook a new signing secret. The one before signs beside it for a day, unless the old secrets are to be
 * revoked. A secret that cannot be opened any more is left behind, so that rotating mends its webhook.
 *
 * @param revokeOld whether every old secret stops signing now
 * @returns whether the scope has such a webhook
 * @throws DomainError FAILED_PRECONDITION when as many secrets as there may be are valid
 */
export function rotateWebhookSecret(
  db: Db,
  box: SecretBox,
  scope: Scope,
  id: bigint,
  revokeOld = false,
): Promise<boolean> {
  const inScope = webhookIn(scope, "webhooks");
  return db.transaction(async (trx) => {
    const [row] = await rows<SecretsRow & { now: Date; endOfOld: Date }>(
      trx,
      `select ${SECRET_COLUMNS}, now() as now, now() + make_interval(hours => :hours::int) as "endOfOld"
        from webhooks where id = :id::bigint and deleted is null and ${inScope.sql} for no key update`,
      { id, hours: OLD_SECRET_HOURS, ...inScope.bindings },
    );
    if (!row) return false;
    const old = (revokeOld ? [] : validAt(row.now, id, row))
      .filter((secret) => opens(box, secret))
      .map(({ sealed, expires }) => ({ sealed, expires: expires ?? row.endOfOld }));
    const oldest = old.at(-1);
    if (oldest && old.length >= MAX_SECRETS) {
      throw new DomainError(
        "FAILED_PRECONDITION",
        `webhook ${id} has ${MAX_SECRETS} valid signing secrets, the most there may be; rotate again after ${oldest.expires.toISOString()}, when the oldest ends, or with revoke_old_secrets, which ends all old ones at once`,
        { reason: "TOO_MANY_SECRETS" },
      );
    }
    await count(
      trx,
      `update webhooks set secret = :secret, old_secrets = :old::bytea[],
          old_secrets_expire = :expiries::timestamptz[], modified = now()
        where id = :id::bigint`,
      {
        id,
        secret: newSealedSecret(box, id),
        old: old.map(({ sealed }) => sealed),
        expiries: old.map(({ expires }) => expires),
      },
    );
    return true;
  });
}

/** Forgets secrets of webhooks and keys that have expired: what counts no more need not lie about. */
export async function forgetExpiredSecrets(db: Db): Promise<void> {
  await count(db, "delete from api_key_old_secrets where expires <= now()");
  // Those that still count come first. All is read from the row that is written, so that none is lost when its
  // webhook's secret is rotated meanwhile.
  await count(
    db,
    `update webhooks w set
        old_secrets = old_secrets[1:(select count(*)::int from unnest(w.old_secrets_expire) e where e > now())],
        old_secrets_expire =
          old_secrets_expire[1:(select count(*)::int from unnest(w.old_secrets_expire) e where e > now())]
      where old_secrets_expire[cardinality(old_secrets_expire)] <= now()`,
  );
}

function validAt(now: Date, webhookId: bigint, row: SecretsRow): SealedSecret[] {
  return sealedSecretsOf(webhookId, row).filter(({ expires }) => expires === null || expires > now);
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
