import { create, type DescMessage, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ApiKeySchema, InstalledAppSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import type { PublishEventResponseSchema, WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import type { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import {
  type CircuitBreaker,
  CircuitBreakerSchema,
  CircuitBreakerState,
  WebhookHealth,
  type WebhookSchema,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { catalogue } from "../../contract/catalogue.ts";
import { DomainError } from "../../contract/errors.ts";
import { SETTING_NAMES, type SettingName, type Settings } from "../../contract/webhooks/settings.ts";
import type { Published } from "../../db/events/publish.ts";
import type { ApiKeyRow, ListedApiKey } from "../../db/keys/api-keys.ts";
import type { InstalledAppRow } from "../../db/keys/installed-apps.ts";
import { reachesWebhook, type Scope } from "../../db/scope.ts";
import type { Breaker, BreakerState } from "../../db/webhooks/breakers.ts";
import type { Health, Trouble, WebhookRow } from "../../db/webhooks/webhooks.ts";
import { invalidFields } from "../errors/errors.ts";
import { findFieldViolations } from "./required-fields.ts";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Whether a text is a UUID in the canonical form. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/** @throws DomainError INVALID_ARGUMENT that names all missing required fields and times out of range */
export function assertFields<Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>): void {
  const violations = findFieldViolations(desc, message);
  if (violations.length > 0) throw invalidFields(violations);
}

/**
 * Checks a user-chosen text, such as a name.
 *
 * @throws DomainError INVALID_ARGUMENT if it is too long or PostgreSQL cannot store it
 */
export function assertText(field: string, text: string, maxCharacters: number): void {
  // Counting characters costs more than their UTF-16 units, of which there are no fewer.
  if (text.length > maxCharacters && [...text].length > maxCharacters) {
    throw invalidFields([{ field, description: `must have at most ${maxCharacters} characters` }]);
  }
  if (text.includes("\0") || !text.isWellFormed()) {
    throw invalidFields([{ field, description: "must be valid Unicode text without null characters" }]);
  }
}

/** All event types by number and name, for messages. */
export function processChoices(): string {
  return catalogue.map(({ number, name }) => `${number} (${name})`).join(", ");
}

/** The error for an unknown event type number. */
export function unknownProcess(number: number): string {
  return `${number} is not an event type; allowed: ${processChoices()}`;
}

/** Whether the number is an event type of this version. */
export function isProcess(number: number): boolean {
  return catalogue.some((entry) => entry.number === number);
}

const HEALTH_NUMBERS: Record<Health, WebhookHealth> = {
  healthy: WebhookHealth.HEALTHY,
  degraded: WebhookHealth.DEGRADED,
  failing: WebhookHealth.FAILING,
};

/** @throws DomainError INVALID_ARGUMENT when a number is none that is given out */
export function healthNames(numbers: readonly WebhookHealth[]): Health[] {
  const names = Object.keys(HEALTH_NUMBERS) as Health[];
  return numbers.map((number) => {
    const name = names.find((each) => HEALTH_NUMBERS[each] === number);
    if (name) return name;
    const choices = names.map((each) => `${HEALTH_NUMBERS[each]} (${each.toUpperCase()})`).join(", ");
    throw invalidFields([
      { field: "health", description: `${number} is not allowed; send any of: ${choices}` },
    ]);
  });
}

/** A webhook as a scope shows it: outside of the scope it has the contract's six fields (2.1) and no other. */
export function webhookMessage(row: WebhookRow, scope: Scope): MessageInitShape<typeof WebhookSchema> {
  const contract = {
    id: row.id,
    created: timestampFromDate(row.created),
    modified: timestampFromDate(row.modified),
    webhookProcess: row.process as WebhookProcess,
    url: row.url,
    ...(row.installedAppId === null ? {} : { application: row.installedAppId }),
  };
  if (!reachesWebhook(scope, row)) return contract;
  return {
    ...contract,
    ...(row.applicationName === null ? {} : { applicationName: row.applicationName }),
    apiKeyId: row.apiKeyId,
    revision: row.revision,
    ...settingFields(row),
    ...(row.paused === null ? {} : { paused: timestampFromDate(row.paused) }),
    ...troubleFields(row.trouble),
    ...(row.filter === null ? {} : { filter: row.filter }),
    ...(row.filterSlow === null ? {} : { filterSlow: timestampFromDate(row.filterSlow) }),
    ...(row.filterStopped === null ? {} : { filterStopped: timestampFromDate(row.filterStopped) }),
    ...(row.breaker === null ? {} : { circuitBreaker: breakerMessage(row.breaker) }),
    ...(row.endpointId === null ? {} : { endpointId: row.endpointId }),
  };
}

function settingFields(row: WebhookRow): { [Name in SettingName]?: NonNullable<Settings[Name]> } {
  const set = SETTING_NAMES.filter((name) => row[name] !== null);
  return Object.fromEntries(set.map((name) => [name, row[name]]));
}

const BREAKER_STATES: Record<BreakerState, CircuitBreakerState> = {
  closed: CircuitBreakerState.CLOSED,
  open: CircuitBreakerState.OPEN,
  disabled: CircuitBreakerState.DISABLED,
};

function breakerMessage(breaker: Breaker): CircuitBreaker {
  const { settings, state, since, reason, nextProbe, failedAttempts } = breaker;
  return create(CircuitBreakerSchema, {
    settings: { enabled: true, ...settings },
    state: BREAKER_STATES[state],
    since: timestampFromDate(new Date(since)),
    reason: reason ?? "",
    ...(nextProbe === null ? {} : { nextProbe: timestampFromDate(new Date(nextProbe)) }),
    failedAttempts,
  });
}

function troubleFields(trouble: Trouble | null): MessageInitShape<typeof WebhookSchema> {
  if (trouble === null) return { health: WebhookHealth.HEALTHY };
  const { health, since, lastError } = trouble;
  return {
    health: HEALTH_NUMBERS[health],
    failingSince: timestampFromDate(new Date(since)),
    ...(lastError === null ? {} : { lastError }),
  };
}

export function apiKeyMessage(row: ApiKeyRow & Partial<ListedApiKey>): MessageInitShape<typeof ApiKeySchema> {
  return {
    id: row.id,
    name: row.name,
    prefix: row.prefix,
    permissions: row.permissions as Permission[],
    allowedProcesses: row.allowedProcesses as WebhookProcess[],
    ...(row.installedAppId === null ? {} : { installedApplicationId: row.installedAppId }),
    created: timestampFromDate(row.created),
    ...(row.revoked === null ? {} : { revoked: timestampFromDate(row.revoked) }),
    ...(row.lastUsed === null ? {} : { lastUsed: timestampFromDate(row.lastUsed) }),
    ...(row.oldSecretsExpire ? { oldSecretsExpire: timestampFromDate(row.oldSecretsExpire) } : {}),
    ...(row.webhookQuota === null && row.eventsPerSecond === null
      ? {}
      : { quotas: { webhooks: row.webhookQuota ?? 0, eventsPerSecond: row.eventsPerSecond ?? 0 } }),
  };
}

export function installedAppMessage(row: InstalledAppRow): MessageInitShape<typeof InstalledAppSchema> {
  return { id: row.id, name: row.name, created: timestampFromDate(row.created) };
}

/** The error for a webhook that does not exist or is outside the caller's scope. */
export function noWebhook(id: bigint): DomainError {
  return new DomainError("NOT_FOUND", `there is no webhook ${id}; list the webhooks to find its Id`, {
    reason: "WEBHOOK_NOT_FOUND",
  });
}

/** The response for a stored event. */
export function publishedMessage(published: Published): MessageInitShape<typeof PublishEventResponseSchema> {
  return {
    eventId: published.eventId,
    deliveriesQueued: published.queued,
    duplicate: published.duplicate,
  };
}
