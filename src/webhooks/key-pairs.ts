import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { DomainError } from "../contract/errors.ts";
import { type Db, rows, run } from "../lib/pg/index.ts";
import { raiseRevisions } from "./revisions.ts";
import { keyPairContext, type SecretBox, UnopenableError } from "./secret-box.ts";
import { GRACE_PERIOD_HOURS, keptBesideNew } from "./webhook-secrets.ts";

/** A valid key pair, whose private key signs `v1a` of Standard Webhooks. */
export interface KeyPair {
  /** `whpk_` and the base64 of the 32 bytes of the ed25519 key. */
  publicKey: string;
  /** The time at which it stops signing; null for the newest. */
  expires: Date | null;
}

interface KeyPairsRow {
  process: number;
  keyPairs: Buffer[];
  keyPairsExpire: (Date | null)[];
  now: Date;
  endOfOld: Date;
}

/** The private key of an opened value. */
export function privateKeyOf(opened: Buffer): KeyObject {
  return createPrivateKey({ key: opened, format: "der", type: "pkcs8" });
}

/**
 * The valid key pairs of a live webhook that the caller may read, newest first.
 *
 * @throws DomainError FAILED_PRECONDITION if no key of this process decrypts one of them
 */
export async function readKeyPairs(db: Db, box: SecretBox, webhookId: bigint): Promise<KeyPair[]> {
  return validAt(await readRow(db, webhookId)).map(({ sealed, expires }) => {
    const publicKey = publicKeyOf(box, webhookId, sealed);
    if (publicKey !== null) return { publicKey, expires };
    throw new DomainError(
      "FAILED_PRECONDITION",
      `a key pair of webhook ${webhookId} can be decrypted with neither SECRET_KEY nor SECRET_KEY_PREVIOUS, or was stored for another webhook; give the service the key it was encrypted with, or create a new pair with RotateWebhookKeyPair`,
    );
  });
}

/**
 * Gives webhooks that are locked by the transaction a new key pair, the same for all. The previous one also signs for a day,
 * unless old pairs are revoked. A pair that can no longer be decrypted is dropped. Workers sign with the new pair within a second.
 *
 * @param webhookIds a webhook, or all of an endpoint
 * @param revokeOld whether to revoke all old pairs immediately
 * @throws DomainError FAILED_PRECONDITION if one has the maximum number of valid pairs
 */
export async function rotateKeyPair(
  trx: Db,
  box: SecretBox,
  webhookIds: readonly bigint[],
  revokeOld: boolean,
): Promise<void> {
  const privateKey = generateKeyPairSync("ed25519").privateKey.export({ format: "der", type: "pkcs8" });
  const processes: number[] = [];
  for (const webhookId of webhookIds) {
    const row = await readRow(trx, webhookId);
    processes.push(row.process);
    const usable = (revokeOld ? [] : validAt(row)).filter(
      ({ sealed }) => publicKeyOf(box, webhookId, sealed) !== null,
    );
    const old = keptBesideNew(webhookId, usable, row.endOfOld, "key pairs", "revoke_old_key_pairs");
    await write(trx, webhookId, [
      { sealed: box.seal(privateKey, keyPairContext(webhookId)), expires: null },
      ...old,
    ]);
  }
  await raiseRevisions(trx, processes);
}

/**
 * Deletes the key pairs of webhooks that are locked by the transaction: their requests carry no `v1a` signature.
 *
 * @param webhookIds a webhook, or all of an endpoint
 * @returns the number of valid pairs that each had
 */
export async function deleteKeyPairs(trx: Db, webhookIds: readonly bigint[]): Promise<number> {
  let most = 0;
  const processes: number[] = [];
  for (const webhookId of webhookIds) {
    const row = await readRow(trx, webhookId);
    const valid = validAt(row).length;
    if (valid > 0) {
      await write(trx, webhookId, []);
      processes.push(row.process);
    }
    most = Math.max(most, valid);
  }
  await raiseRevisions(trx, processes);
  return most;
}

async function write(
  trx: Db,
  webhookId: bigint,
  pairs: readonly { sealed: Buffer; expires: Date | null }[],
): Promise<void> {
  await run(
    trx,
    trx("webhooks")
      .where({ id: webhookId })
      .update({
        key_pairs: pairs.map(({ sealed }) => sealed),
        key_pairs_expire: pairs.map(({ expires }) => expires),
        modified: trx.fn.now(),
        revision: trx.raw("revision + 1"),
      }),
  );
}

async function readRow(db: Db, webhookId: bigint): Promise<KeyPairsRow> {
  const [row] = await rows<KeyPairsRow>(
    db,
    `select process, key_pairs as "keyPairs", key_pairs_expire as "keyPairsExpire", now() as now,
        now() + make_interval(hours => :hours::int) as "endOfOld"
      from webhooks where id = :webhookId::bigint`,
    { webhookId, hours: GRACE_PERIOD_HOURS },
  );
  if (!row) throw new Error(`webhook ${webhookId} has no row`);
  return row;
}

function validAt({ keyPairs, keyPairsExpire, now }: KeyPairsRow): { sealed: Buffer; expires: Date | null }[] {
  return keyPairs
    .map((sealed, index) => ({ sealed, expires: keyPairsExpire[index] ?? null }))
    .filter(({ expires }) => expires === null || expires > now);
}

/** Null if no key of this process decrypts it. */
function publicKeyOf(box: SecretBox, webhookId: bigint, sealed: Buffer): string | null {
  try {
    const { x = "" } = createPublicKey(privateKeyOf(box.open(sealed, keyPairContext(webhookId)))).export({
      format: "jwk",
    });
    return `whpk_${Buffer.from(x, "base64url").toString("base64")}`;
  } catch (error) {
    if (error instanceof UnopenableError) return null;
    throw error;
  }
}
