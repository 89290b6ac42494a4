import { isDeepStrictEqual } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type {
  MaskedOAuth2AuthenticationSchema,
  MaskedRequestSettingsSchema,
  OAuth2Authentication,
  RequestSettings as SettingsMessage,
} from "../../../gen/webhook/v1/request_settings_pb.ts";
import type { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { auditedCall, type Facts } from "../../audit/index.ts";
import { invalidField, invalidFields, stateNotFit } from "../../calls/errors/index.ts";
import { callerOf, callerScope, FairQueue, noWebhook } from "../../calls/index.ts";
import {
  bearerTokenError,
  clientIdError,
  headerNameError,
  headerValue,
  headerValueError,
  MAX_HEADERS,
  userNameError,
} from "../../contract/delivery-headers.ts";
import type { FieldViolation } from "../../contract/errors.ts";
import { present } from "../../contract/present.ts";
import { timingOf } from "../../contract/request-timing.ts";
import {
  InvalidTargetError,
  MAX_TRIALS,
  type OAuth2Client,
  type TargetRules,
} from "../../contract/target-rules.ts";
import { type SecondSignature, secondSignatureHeaders } from "../../contract/webhooks/second-signature.ts";
import type { Db } from "../../lib/pg/index.ts";
import {
  type Authentication,
  headersOfSettings,
  NO_REQUEST_SETTINGS,
  type RequestSettings,
  readRequestSettings,
  writeRequestSettings,
} from "../request-settings.ts";
import type { SecretBox } from "../secret-box.ts";
import { lockShared } from "../shared-webhooks.ts";
import { eachOf, webhookTarget } from "../webhook-changes.ts";
import { type ChangedWebhook, expectRevision } from "../webhook-update.ts";
import { getWebhook, idsOf, requiredWebhook } from "../webhooks.ts";
import { sampleOf } from "./event-types.ts";
import type { WebhookServiceParts } from "./service-parts.ts";
import { type Check, checkedTls, type Findings, maskedTls, tlsFacts } from "./tls-settings.ts";

/** The maximum number of test requests of a key in flight per process, so that hanging endpoints delay no other key's. */
const MAX_TRIALS_PER_KEY = 2;

type Methods = Pick<
  ServiceImpl<typeof WebhookService>,
  "getWebhookRequestSettings" | "setWebhookRequestSettings" | "tryWebhookRequest"
>;

/** The methods for custom headers and authentication of a webhook's requests. */
export function requestSettingsMethods({
  db,
  secrets,
  targets,
  tryRequest,
}: Pick<WebhookServiceParts, "db" | "secrets" | "targets" | "tryRequest">): Methods {
  const queue = new FairQueue("test requests", { atOnce: MAX_TRIALS, perKey: MAX_TRIALS_PER_KEY });
  return {
    async getWebhookRequestSettings({ webhookId }, handler) {
      const webhook = await requiredWebhook(db, callerScope(handler), webhookId);
      // Read after the revision: if the settings change in between, a change with this revision is refused.
      const settings = masked(await readRequestSettings(db, secrets, webhookId));
      return { settings, revision: webhook.revision };
    },

    async setWebhookRequestSettings({ webhookId, settings, revision }, handler) {
      return auditedCall(db, handler, async (trx, record) => {
        const shared = await lockShared(trx, callerScope(handler), webhookId);
        const [webhook] = shared;
        if (!webhook) throw noWebhook(webhookId);
        expectRevision(webhook, revision);
        // Removing the settings also repairs those that cannot be decrypted.
        if (settings === undefined) {
          await writeRequestSettings(trx, secrets, idsOf(shared), NO_REQUEST_SETTINGS);
          const after = facts(NO_REQUEST_SETTINGS);
          await record(...eachOf(shared, { action: "webhook_updated", after }));
          return { settings: masked(NO_REQUEST_SETTINGS) };
        }
        const before = await readRequestSettings(trx, secrets, webhookId);
        const { settings: after, warnings } = merged(settings, before, targets, webhook);
        if (!isDeepStrictEqual(before, after)) {
          await writeRequestSettings(trx, secrets, idsOf(shared), after);
          await record(...eachOf(shared, { action: "webhook_updated", ...changedFacts(before, after) }));
        }
        return { settings: masked(after), warnings };
      });
    },

    async tryWebhookRequest({ webhookId, settings }, handler) {
      if (!tryRequest) {
        throw stateNotFit("this process sends no test requests; call a process with ROLE=api or ROLE=all");
      }
      const webhook = await requiredWebhook(db, callerScope(handler), webhookId);
      const payload = sampleOf(webhook.process);
      if (payload === undefined) {
        throw stateNotFit(
          `webhook ${webhookId} is for event type ${webhook.process}, which this version does not know`,
        );
      }
      // Read after the revision: if the settings or the URL change until the request starts, it is refused.
      const stored = await readRequestSettings(db, secrets, webhookId);
      const { settings: tried, warnings } =
        settings === undefined
          ? { settings: NO_REQUEST_SETTINGS, warnings: [] }
          : merged(settings, stored, targets, webhook);
      const { authentication } = tried;
      const outcome = await queue.run(callerOf(handler).id, handler.signal, async () => {
        await auditedCall(db, handler, (_trx, record) =>
          record({ action: "request_tried", target: webhookTarget(webhook), after: facts(tried) }),
        );
        return tryRequest({
          webhookId,
          revision: webhook.revision,
          headers: headersOfSettings(tried),
          oauth2: authentication?.kind === "oauth2" ? authentication.client : null,
          tls: tried.tls,
          payload,
        });
      });
      if (!outcome) {
        const now = await getWebhook(db, callerScope(handler), webhookId);
        if (now) expectRevision(now, webhook.revision);
        throw noWebhook(webhookId);
      }
      const { accepted, status, error, responseStart, durationMs, cause, timing, addresses } = outcome;
      return {
        accepted,
        durationMs,
        warnings,
        ...present({ status, error, responseStart, cause }),
        timing: timingOf(timing),
        // Only the operator may see addresses, which an internal DNS zone may answer.
        addresses: callerScope(handler) === "everything" ? [...addresses] : [],
        certificates: outcome.certificates.map(({ notBefore, notAfter, names, ...certificate }) => ({
          ...certificate,
          names: [...names],
          notBefore: timestampFromDate(notBefore),
          notAfter: timestampFromDate(notAfter),
        })),
      };
    },
  };
}

/**
 * Checks a change of a webhook's URL. Stored credentials cannot be read, and another host must not get them either.
 *
 * @throws DomainError FAILED_PRECONDITION if the webhook has any and its URL another origin
 */
export async function keepCredentialsOnHost(
  trx: Db,
  secrets: SecretBox,
  { before, webhook }: ChangedWebhook,
): Promise<void> {
  if (!isMoved({ before, webhook })) return;
  const { headers, authentication } = await readRequestSettings(trx, secrets, webhook.id);
  if (headers.length === 0 && authentication === null) return;
  throw stateNotFit(
    `webhook ${webhook.id} sends stored headers or credentials, which another host would get; send request_settings with the headers and credentials for that host, or empty to remove them`,
  );
}

/**
 * Checks a change of a webhook's second signature.
 *
 * @throws DomainError INVALID_ARGUMENT if it has a header of the webhook's stored settings
 */
export async function assertOwnHeaders(
  trx: Db,
  secrets: SecretBox,
  { before, webhook }: ChangedWebhook,
): Promise<void> {
  const names = secondSignatureHeaders(webhook);
  if (isDeepStrictEqual(names, secondSignatureHeaders(before)) || names.length === 0) return;
  const clash = signatureClash(webhook, await readRequestSettings(trx, secrets, webhook.id));
  const field = webhook.signatureForm === "svix" ? "signature_form" : "signature_header";
  if (clash) throw invalidField(field, clash);
}

/** What is wrong if a header of a second signature is also one of the settings; otherwise undefined. */
function signatureClash(
  signing: SecondSignature,
  { headers, authentication }: RequestSettings,
): string | undefined {
  const names = [...headers.map(({ name }) => name), ...(authentication ? ["Authorization"] : [])];
  const taken = new Set(names.map((name) => name.toLowerCase()));
  const clash = secondSignatureHeaders(signing).find((name) => taken.has(name.toLowerCase()));
  return (
    clash &&
    `must not have ${clash} twice: as a custom header or for authentication, and for the second signature`
  );
}

/** Whether a webhook's URL has another origin than before. */
function isMoved({ before, webhook }: ChangedWebhook): boolean {
  return new URL(before.targetUrl).origin !== new URL(webhook.targetUrl).origin;
}

/**
 * Replaces the settings of a webhook, and of the others of its endpoint, as part of an update. Of headers and credentials, another
 * host gets no stored values.
 *
 * @returns what changed, for the audit log, if anything did, and notes for the caller
 * @throws DomainError INVALID_ARGUMENT that names every wrong field, and repeats no value
 */
export async function replaceSettings(
  trx: Db,
  secrets: SecretBox,
  targets: TargetRules,
  updated: ChangedWebhook & { others: ChangedWebhook[] },
  asked: SettingsMessage,
): Promise<{ changed?: { before: Facts; after: Facts }; warnings: string[] }> {
  const shared = [updated, ...updated.others].map(({ webhook }) => webhook);
  const before = await readRequestSettings(trx, secrets, updated.webhook.id);
  const kept = isMoved(updated) ? { ...NO_REQUEST_SETTINGS, tls: before.tls } : before;
  const { settings: after, warnings } = merged(asked, kept, targets, updated.webhook, "request_settings");
  if (isDeepStrictEqual(before, after)) return { warnings };
  await writeRequestSettings(trx, secrets, idsOf(shared), after);
  return { changed: changedFacts(before, after), warnings };
}

/**
 * The settings of a request, with stored values where it leaves them out, and notes about them.
 *
 * @param webhook its second signature adds headers, and its customer decides on the token URL
 * @param fieldName the name of the request's field
 * @throws DomainError INVALID_ARGUMENT that names every wrong field, and repeats no value
 */
function merged(
  { headers, authentication, tls }: SettingsMessage,
  stored: RequestSettings,
  targets: TargetRules,
  webhook: SecondSignature & { customer: string | null },
  fieldName = "settings",
): { settings: RequestSettings; warnings: string[] } {
  const wrong: FieldViolation[] = [];
  const warnings: string[] = [];
  const check: Check = (field, description) => {
    if (description !== undefined) wrong.push({ field: `${fieldName}.${field}`, description });
  };
  const warn: Findings["warn"] = (field, note) => void warnings.push(`${fieldName}.${field}: ${note}`);
  if (headers.length > MAX_HEADERS) check("headers", `must be at most ${MAX_HEADERS}`);
  const seen = new Set<string>();
  const made = headers.map(({ name, value }, index) => {
    const field = `headers[${index}]`;
    const lower = name.toLowerCase();
    const kept = stored.headers.find((each) => each.name.toLowerCase() === lower)?.value;
    // Earlier versions stored names that are not allowed any more. They stay until they get another value.
    const nameError = value === undefined && kept !== undefined ? undefined : headerNameError(name);
    check(`${field}.name`, nameError);
    if (seen.has(lower)) check(`${field}.name`, `is ${name}, as an earlier one; send each name once`);
    seen.add(lower);
    if (nameError === undefined && value === undefined && kept === undefined) {
      check(`${field}.value`, "is required: no value is stored for this name");
    }
    if (value !== undefined) check(`${field}.value`, headerValueError(value));
    return { name, value: value === undefined ? (kept ?? "") : headerValue(value) };
  });
  if (seen.has("authorization") && authentication.case !== undefined) {
    check("headers", "must not contain Authorization, which the authentication sets; remove one of them");
  }
  const result = {
    headers: made,
    authentication: authenticationOf(
      authentication,
      stored,
      (url) => targets.normalise(url, webhook.customer),
      check,
    ),
    tls: checkedTls(tls, stored.tls, { check, warn }),
  };
  check("headers", signatureClash(webhook, result));
  if (wrong.length > 0) throw invalidFields(wrong);
  return { settings: result, warnings };
}

/** The normalised URL of a token endpoint. @throws InvalidTargetError */
type TargetUrl = (url: string) => string;

function authenticationOf(
  asked: SettingsMessage["authentication"],
  { authentication: stored }: RequestSettings,
  normalise: TargetUrl,
  check: Check,
): Authentication | null {
  if (asked.case === "basic") {
    const { username, password } = asked.value;
    check("basic.username", userNameError(username));
    const kept = stored?.kind === "basic" && stored.username === username ? stored.password : undefined;
    if (password !== undefined) check("basic.password", headerValueError(password));
    else if (kept === undefined) check("basic.password", "is required: none is stored for this user name");
    return { kind: "basic", username, password: password ?? kept ?? "" };
  }
  if (asked.case === "bearer") {
    const { token } = asked.value;
    const kept = stored?.kind === "bearer" ? stored.token : undefined;
    if (token !== undefined) check("bearer.token", bearerTokenError(token));
    else if (kept === undefined) check("bearer.token", "is required: none is stored");
    return { kind: "bearer", token: token === undefined ? (kept ?? "") : headerValue(token) };
  }
  if (asked.case === "oauth2") {
    const was = stored?.kind === "oauth2" ? stored.client : null;
    return { kind: "oauth2", client: oauth2Client(asked.value, was, normalise, check) };
  }
  return null;
}

function oauth2Client(
  { tokenUrl: url, clientId, clientSecret, scope, audience, secretInBody }: OAuth2Authentication,
  stored: OAuth2Client | null,
  normalise: TargetUrl,
  check: Check,
): OAuth2Client {
  let tokenUrl = url;
  try {
    tokenUrl = normalise(url);
  } catch (error) {
    if (!(error instanceof InvalidTargetError)) throw error;
    check("oauth2.token_url", error.message.replace(/^url:? /, ""));
  }
  // The body of the token request encodes these, so that a server decides what they may hold (RFC 6749, appendix A, allows less).
  check("oauth2.client_id", clientIdError(clientId));
  check("oauth2.scope", headerValueError(scope));
  check("oauth2.audience", headerValueError(audience));
  // A secret goes only where it was meant for.
  const isSame = stored?.tokenUrl === tokenUrl && stored.clientId === clientId;
  const kept = isSame ? stored.clientSecret : undefined;
  if (clientSecret !== undefined) check("oauth2.client_secret", headerValueError(clientSecret));
  else if (kept === undefined)
    check("oauth2.client_secret", "is required: none is stored for this token URL and client id");
  return {
    tokenUrl,
    clientId,
    clientSecret: clientSecret ?? kept ?? "",
    scope: scope || null,
    audience: audience || null,
    secretInBody,
  };
}

function masked({
  headers,
  authentication,
  tls,
}: RequestSettings): MessageInitShape<typeof MaskedRequestSettingsSchema> {
  return {
    headerNames: headers.map(({ name }) => name),
    ...(authentication?.kind === "basic" ? { basicUsername: authentication.username } : {}),
    hasBearerToken: authentication?.kind === "bearer",
    ...(authentication?.kind === "oauth2" ? { oauth2: maskedClient(authentication.client) } : {}),
    ...maskedTls(tls),
  };
}

function maskedClient({
  tokenUrl,
  clientId,
  scope,
  audience,
  secretInBody,
}: OAuth2Client): MessageInitShape<typeof MaskedOAuth2AuthenticationSchema> {
  return { tokenUrl, clientId, scope: scope ?? "", audience: audience ?? "", secretInBody };
}

/** The facts of request settings for the audit log, without values. */
function facts({ headers, authentication, tls }: RequestSettings): Facts {
  return {
    ...tlsFacts(tls),
    header_names: headers.map(({ name }) => name),
    authentication: authentication?.kind ?? null,
    basic_username: authentication?.kind === "basic" ? authentication.username : null,
    ...(authentication?.kind === "oauth2"
      ? {
          oauth2_token_url: authentication.client.tokenUrl,
          oauth2_client_id: authentication.client.clientId,
          oauth2_scope: authentication.client.scope,
          oauth2_audience: authentication.client.audience,
        }
      : {}),
  };
}

/** The facts of a change for the audit log. */
function changedFacts(before: RequestSettings, after: RequestSettings): { before: Facts; after: Facts } {
  return { before: facts(before), after: { ...facts(after), ...changedSecrets(before, after) } };
}

/** The names of settings whose value is another than before. */
function changedSecrets(before: RequestSettings, after: RequestSettings): Facts {
  const changed = after.headers
    .filter(({ name, value }) => before.headers.some((was) => was.name === name && was.value !== value))
    .map(({ name }) => name);
  const credentials =
    before.authentication?.kind === after.authentication?.kind &&
    !isDeepStrictEqual(before.authentication, after.authentication);
  return {
    ...(changed.length > 0 ? { changed_values: changed } : {}),
    ...(credentials ? { credentials_changed: true } : {}),
  };
}
