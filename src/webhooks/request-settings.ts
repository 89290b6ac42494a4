import { headerBytes } from "../contract/delivery-headers.ts";
import type { OAuth2Client, TlsSettings } from "../contract/target-rules.ts";
import { type Db, run } from "../lib/pg/index.ts";
import { type InstanceType, raiseRevisions, writeWebhook } from "./revisions.ts";
import { openFor, type SecretBox, type SecretContext } from "./secret-box.ts";

/** Credentials that a webhook's requests carry. */
export type Authentication =
  | { kind: "basic"; username: string; password: string }
  | { kind: "bearer"; token: string }
  | { kind: "oauth2"; client: OAuth2Client };

/** Settings of a webhook's requests: headers and credentials beside the contract's headers, and TLS. */
export interface RequestSettings {
  /** Custom headers, in the order in which they are sent. */
  headers: readonly { name: string; value: string }[];
  authentication: Authentication | null;
  /** Null unless it has a client certificate or authorities. */
  tls: TlsSettings | null;
}

/** The settings of a webhook that has none. */
export const NO_REQUEST_SETTINGS: RequestSettings = { headers: [], authentication: null, tls: null };

/** The context that the settings of a webhook are sealed for. */
export function requestSettingsContext(webhookId: bigint): SecretContext {
  return { purpose: "webhook-request-settings", row: String(webhookId) };
}

/** @returns null for settings that add nothing */
export function sealRequestSettings(
  box: SecretBox,
  webhookId: bigint,
  settings: RequestSettings,
): Buffer | null {
  const { headers, authentication, tls } = settings;
  if (headers.length === 0 && authentication === null && tls === null) return null;
  return box.seal(JSON.stringify(settings), requestSettingsContext(webhookId));
}

/** @throws UnopenableError if no key of this process decrypts them */
export function openRequestSettings(box: SecretBox, webhookId: bigint, sealed: Buffer): RequestSettings {
  return JSON.parse(box.open(sealed, requestSettingsContext(webhookId)).toString()) as RequestSettings;
}

/**
 * Custom headers and the header of Basic or bearer authentication: names and values in turn, each character of a value a byte of its
 * UTF-8. The header of an OAuth 2.0 access token is not among them.
 */
export function headersOfSettings({ headers, authentication }: RequestSettings): string[] {
  const parts = headers.flatMap(({ name, value }) => [name, headerBytes(value)]);
  if (authentication?.kind === "basic") {
    const { username, password } = authentication;
    parts.push("Authorization", `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`);
  } else if (authentication?.kind === "bearer") {
    parts.push("Authorization", `Bearer ${headerBytes(authentication.token)}`);
  }
  return parts;
}

/**
 * The settings of a live webhook that the caller may read.
 *
 * @throws DomainError FAILED_PRECONDITION if no key of this process decrypts them
 */
export async function readRequestSettings(
  db: Db,
  box: SecretBox,
  webhookId: bigint,
): Promise<RequestSettings> {
  const [row] = await run(db, db("webhooks").select("request_settings").where({ id: webhookId }));
  if (!row?.request_settings) return NO_REQUEST_SETTINGS;
  const sealed = row.request_settings;
  return openFor(`the stored value of the request settings of webhook ${webhookId}`, () =>
    openRequestSettings(box, webhookId, sealed),
  );
}

/**
 * Stores the settings of webhooks that are locked by the transaction: of one, or of all of an endpoint. Workers use them within a
 * second.
 */
export async function writeRequestSettings(
  trx: Db,
  box: SecretBox,
  webhookIds: readonly bigint[],
  settings: RequestSettings,
): Promise<void> {
  const types: InstanceType[] = [];
  for (const webhookId of webhookIds) {
    const values = { request_settings: sealRequestSettings(box, webhookId, settings) };
    types.push(...(await writeWebhook(trx, webhookId, values)));
  }
  await raiseRevisions(trx, types);
}
