import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import {
  type CircuitBreaker,
  CircuitBreakerSchema,
  type CircuitBreakerState,
  CircuitBreakerStateSchema,
  WebhookHealth,
  type WebhookSchema,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { reachesWebhook, type Scope } from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { nameOf, numbersOf } from "../../contract/enum-numbers.ts";
import { present, timestampOf } from "../../contract/present.ts";
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
  return numbers.map((number) => {
    const name = nameOf(HEALTH_NUMBERS, number);
    if (name) return name;
    const choices = Object.entries(HEALTH_NUMBERS).map(([each, n]) => `${n} (${each.toUpperCase()})`);
    throw invalidField("health", `${number} is not allowed; send any of: ${choices.join(", ")}`);
  });
}

/** A webhook as a scope shows it: outside of the scope it has the contract's six fields (2.1) and no other. */
export function webhookMessage(row: WebhookRow, scope: Scope): MessageInitShape<typeof WebhookSchema> {
  const contract = present({
    id: row.id,
    created: timestampFromDate(row.created),
    modified: timestampFromDate(row.modified),
    webhookProcess: row.process as WebhookProcess,
    url: row.url,
    application: row.installedAppId,
  });
  if (!reachesWebhook(scope, row)) return contract;
  return present({
    ...contract,
    webhookProcessName: processName(row.process),
    applicationName: row.applicationName,
    customer: row.customer,
    apiKeyId: row.apiKeyId,
    revision: row.revision,
    ...settingFields(row),
    paused: timestampOf(row.paused),
    ...troubleFields(row.trouble),
    neverTried: row.neverTried,
    filter: row.filter,
    filterSlow: timestampOf(row.filterSlow),
    filterStopped: timestampOf(row.filterStopped),
    heldUntil: timestampOf(row.heldUntil),
    takesPerSecond: row.takesPerSecond,
    circuitBreaker: row.breaker && breakerMessage(row.breaker),
    endpointId: row.endpointId,
  });
}

function settingFields(row: WebhookRow): SettingFields {
  const set = SETTING_NAMES.filter((name) => row[name] !== null);
  const fieldOf = (name: SettingName) => {
    const choices = choicesOf(name);
    return choices ? choices.indexOf(row[name] as string) + 1 : row[name];
  };
  return Object.fromEntries(set.map((name) => [name, fieldOf(name)]));
}

const BREAKER_STATES: Record<BreakerState, CircuitBreakerState> = numbersOf(CircuitBreakerStateSchema);

function breakerMessage(breaker: Breaker): CircuitBreaker {
  const { settings, state, since, reason, nextProbe, failedAttempts } = breaker;
  return create(CircuitBreakerSchema, {
    settings: { enabled: true, ...settings },
    state: BREAKER_STATES[state],
    since: timestampFromDate(new Date(since)),
    reason: reason ?? "",
    ...present({ nextProbe: timestampOf(nextProbe === null ? null : new Date(nextProbe)) }),
    failedAttempts,
  });
}

function troubleFields(trouble: Trouble | null) {
  if (trouble === null) return { health: WebhookHealth.HEALTHY };
  const { health, since, lastError } = trouble;
  const failingSince = timestampFromDate(new Date(since));
  return present({ health: HEALTH_NUMBERS[health], failingSince, lastError });
}
