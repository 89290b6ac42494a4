import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import {
  type CircuitBreaker,
  CircuitBreakerSchema,
  CircuitBreakerState,
  WebhookHealth,
  type WebhookSchema,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { reachesWebhook, type Scope } from "../../calls/index.ts";
import {
  choicesOf,
  SETTING_NAMES,
  type SettingFields,
  type SettingName,
} from "../../contract/webhooks/settings.ts";
import type { Breaker, BreakerState } from "../breakers.ts";
import { HEALTH_NUMBERS, type Health, type Trouble, type WebhookRow } from "../webhooks.ts";

/** @throws DomainError INVALID_ARGUMENT when a number is none that is given out */
export function healthNames(numbers: readonly WebhookHealth[]): Health[] {
  const names = Object.keys(HEALTH_NUMBERS) as Health[];
  return numbers.map((number) => {
    const name = names.find((each) => HEALTH_NUMBERS[each] === number);
    if (name) return name;
    const choices = names.map((each) => `${HEALTH_NUMBERS[each]} (${each.toUpperCase()})`).join(", ");
    throw invalidField("health", `${number} is not allowed; send any of: ${choices}`);
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
    ...(row.heldUntil === null ? {} : { heldUntil: timestampFromDate(row.heldUntil) }),
    ...(row.takesPerSecond === null ? {} : { takesPerSecond: row.takesPerSecond }),
    ...(row.breaker === null ? {} : { circuitBreaker: breakerMessage(row.breaker) }),
    ...(row.endpointId === null ? {} : { endpointId: row.endpointId }),
  };
}

function settingFields(row: WebhookRow): SettingFields {
  const set = SETTING_NAMES.filter((name) => row[name] !== null);
  const fieldOf = (name: SettingName) => {
    const choices = choicesOf(name);
    return choices ? choices.indexOf(row[name] as string) + 1 : row[name];
  };
  return Object.fromEntries(set.map((name) => [name, fieldOf(name)]));
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
