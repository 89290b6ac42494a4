import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { type Db, rows } from "../lib/pg/index.ts";
import { type InstanceType, raiseRevisions, writeWebhook } from "./revisions.ts";
import { keyPairContext, openFor, type SecretBox, tryOpen } from "./secret-box.ts";
import { GRACE_PERIOD_HOURS, keptBesideNew } from "./webhook-secrets.ts";

/** A valid key pair, whose private key signs `v1a` of Standard Webhooks. */
export interface KeyPair {
  /** `whpk_` and the base64 of the 32 bytes of the ed25519 key. */
  publicKey: string;
  /** The time at which it stops signing; null for the newest. */
  expires: Date | null;
}

interface KeyPairsRow {
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
  const open = (sealed: Buffer) => () => publicKeyOf(box, webhookId, sealed);
  const remedy = ", or create a new pair with RotateWebhookKeyPair";
  return validAt(await readRow(db, webhookId)).map(({ sealed, expires }) => ({
    publicKey: openFor(`a key pair of webhook ${webhookId}`, open(sealed), remedy),
    expires,
  }));
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
  const types: InstanceType[] = [];
  for (const webhookId of webhookIds) {
    const row = await readRow(trx, webhookId);
    const usable = (revokeOld ? [] : validAt(row)).filter(({ sealed }) =>
      tryOpen(box, sealed, keyPairContext(webhookId)),
    );
    const old = keptBesideNew(webhookId, usable, row.endOfOld, "key pairs", "revoke_old_key_pairs");
    const made = { sealed: box.seal(privateKey, keyPairContext(webhookId)), expires: null };
    types.push(...(await write(trx, webhookId, [made, ...old])));
  }
  await raiseRevisions(trx, types);
}

/**
 * Deletes the key pairs of webhooks that are locked by the transaction: their requests carry no `v1a` signature.
 *
 * @param webhookIds a webhook, or all of an endpoint
 * @returns the number of valid pairs that each had
 */
export async function deleteKeyPairs(trx: Db, webhookIds: readonly bigint[]): Promise<number> {
  let most = 0;
  const types: InstanceType[] = [];
  for (const webhookId of webhookIds) {
    const valid = validAt(await readRow(trx, webhookId)).length;
    if (valid > 0) types.push(...(await write(trx, webhookId, [])));
    most = Math.max(most, valid);
  }
  await raiseRevisions(trx, types);
  return most;
}

/** @returns the event type and customer, as `writeWebhook` does */
function write(
  trx: Db,
  webhookId: bigint,
  pairs: readonly { sealed: Buffer; expires: Date | null }[],
): Promise<InstanceType[]> {
  return writeWebhook(trx, webhookId, {
    key_pairs: pairs.map(({ sealed }) => sealed),
    key_pairs_expire: pairs.map(({ expires }) => expires),
  });
}

async function readRow(db: Db, webhookId: bigint): Promise<KeyPairsRow> {
  const [row] = await rows<KeyPairsRow>(
    db,
    `select key_pairs as "keyPairs", key_pairs_expire as "keyPairsExpire", now() as now,
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

function publicKeyOf(box: SecretBox, webhookId: bigint, sealed: Buffer): string {
  const privateKey = privateKeyOf(box.open(sealed, keyPairContext(webhookId)));
  const { x = "" } = createPublicKey(privateKey).export({ format: "jwk" });
  return `whpk_${Buffer.from(x, "base64url").toString("base64")}`;
}
