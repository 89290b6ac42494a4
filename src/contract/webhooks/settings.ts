import type { SignatureForm } from "../../../gen/webhook/v1/webhook_pb.ts";
import { headerNameError, headerPrefixError } from "../delivery-headers.ts";
import { periodInWords } from "../time-in-words.ts";
import { SIGNATURE_FORMS } from "./second-signature.ts";

/** A setting that is a text. */
interface TextSetting {
  column: string;
  type: "text";
  /** Whether deliveries need it: it is read with each claim. Defaults to false. */
  isClaimed?: boolean;
  /** The error of a value, to read after the field's name; undefined if the value is allowed. */
  error?: (value: string) => string | undefined;
  /** The stored values of an enumeration in messages, in the order of its numbers from 1. */
  choices?: readonly string[];
}

/** A setting that is a whole number. */
export interface NumberSetting {
  column: string;
  type: "int";
  /** Whether deliveries need it: it is read with each claim. Defaults to false. */
  isClaimed?: boolean;
  min: number;
  /** Undefined for DELIVERY_TIMEOUT, in milliseconds. */
  max?: number;
  /** The unit of its values, in errors. */
  unit: string;
  /** Its field on the settings page. */
  field: {
    label: string;
    description: string;
    /** The meaning of an empty field: `no limit`. */
    none: string;
    /** The unit there, as the description begins with it, and its size in units of the value. */
    unit: string;
    factor: number;
    /** A value in that unit, for a webhook with these numbers. Undefined if another setting's words contain it. */
    inWords: (shown: number, numbers: Partial<Record<"ratePeriodSeconds", number>>) => string | undefined;
    /** Whether an unset value is left out where the settings are shown. Defaults to false. */
    isRare?: boolean;
  };
}

/** The delay of a retry that a webhook has instead of the service's. */
const retryDelay = <Column extends string>(column: Column, which: string) =>
  ({
    column,
    type: "int",
    min: 1,
    max: 86_400,
    unit: "seconds",
    field: {
      label: `${which} retry`,
      description: "After the failed attempt before it; up to a tenth longer.",
      none: "the service’s delay",
      unit: "Seconds",
      factor: 1,
      inWords: (shown: number) => `after ${periodInWords(shown)}`,
      isRare: true,
    },
  }) as const;

/**
 * The settings of a webhook that are one value each. Their columns in queries, checks, messages, facts of the audit log and fields of
 * the settings page are made from this table. A new one is added here, to Webhook and UpdateWebhookRequest in webhook.proto, to a
 * migration, and where it is used.
 */
export const SETTINGS = {
  /** A name for people. */
  name: { column: "name", type: "text" },
  /** The maximum number of deliveries per period. */
  rateLimit: {
    column: "rate_limit",
    type: "int",
    min: 1,
    max: 10_000,
    unit: "deliveries per period",
    field: {
      label: "Rate limit",
      description: "First attempts and retries together. Deliveries beyond the limit wait.",
      none: "no limit",
      unit: "Deliveries per period",
      factor: 1,
      inWords: rateInWords,
    },
  },
  /** The period of `rateLimit`. Null stands for a second. */
  ratePeriodSeconds: {
    column: "rate_period_seconds",
    type: "int",
    min: 1,
    max: 86_400,
    unit: "seconds",
    field: {
      label: "Rate period",
      description: "The limit is spread evenly over the period: 30 in 60 seconds is one every 2 seconds.",
      none: "one second",
      unit: "Seconds",
      factor: 1,
      inWords: () => undefined,
      isRare: true,
    },
  },
  /** The timeout of an attempt, in milliseconds. DELIVERY_TIMEOUT is shorter if it was lowered since. */
  timeoutMs: {
    column: "timeout_ms",
    type: "int",
    isClaimed: true,
    min: 1_000,
    unit: "milliseconds",
    field: {
      label: "Timeout",
      description: "For the connection, the request and the response of an attempt.",
      none: "the service’s timeout",
      unit: "Seconds",
      factor: 1_000,
      inWords: (shown) => `${shown} s`,
    },
  },
  /** The delays of the three retries of a round. Null stands for that of RETRY_INITIAL_DELAY and RETRY_BACKOFF_COEFFICIENT. */
  firstRetrySeconds: retryDelay("first_retry_seconds", "First"),
  secondRetrySeconds: retryDelay("second_retry_seconds", "Second"),
  thirdRetrySeconds: retryDelay("third_retry_seconds", "Third"),
  /** The form of the signature beside that of Standard Webhooks. */
  signatureForm: { column: "signature_form", type: "text", isClaimed: true, choices: SIGNATURE_FORMS },
  /** The header of that signature. Null stands for that of the form. */
  signatureHeader: { column: "signature_header", type: "text", isClaimed: true, error: headerNameError },
  /** The text before that signature, in the form `hex`. */
  signaturePrefix: { column: "signature_prefix", type: "text", isClaimed: true, error: headerPrefixError },
} as const satisfies Record<string, TextSetting | NumberSetting>;

export type SettingName = keyof typeof SETTINGS;
type ValueOf<Name extends SettingName> = (typeof SETTINGS)[Name] extends {
  choices: readonly (infer Choice)[];
}
  ? Choice
  : (typeof SETTINGS)[Name]["type"] extends "int"
    ? number
    : string;

/** The values of a webhook's settings. Null stands for none. */
export type Settings = { [Name in SettingName]: ValueOf<Name> | null };

/** The row of the settings in the table of webhooks. */
export type SettingColumns = { [Name in SettingName as (typeof SETTINGS)[Name]["column"]]: Settings[Name] };

/** The settings that are numbers. */
export type NumberName = { [Name in SettingName]: ValueOf<Name> extends number ? Name : never }[SettingName];

/** The settings that deliveries need. */
export type ClaimedSettings = {
  [Name in SettingName as (typeof SETTINGS)[Name] extends { isClaimed: true } ? Name : never]: Settings[Name];
};

export const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[];

export const CLAIMED_NAMES = SETTING_NAMES.filter((name) => "isClaimed" in SETTINGS[name]);

export const NUMBER_NAMES = SETTING_NAMES.filter((name): name is NumberName => SETTINGS[name].type === "int");

/** The fields of the settings in messages. Those without a value are left out. */
export type SettingFields = {
  [Name in SettingName]?: (typeof SETTINGS)[Name] extends { choices: unknown }
    ? SignatureForm
    : ValueOf<Name>;
};

/** The stored values of a setting that is an enumeration in messages, in the order of its numbers from 1; undefined for others. */
export const choicesOf = (name: SettingName): readonly string[] | undefined =>
  (SETTINGS[name] as TextSetting).choices;

/** The error of a text, to read after the field's name; undefined if the setting has no rule, or the value is allowed. */
export const textError = (name: SettingName, value: string): string | undefined =>
  (SETTINGS[name] as TextSetting).error?.(value);

export const numberSetting = (name: NumberName): NumberSetting => SETTINGS[name];

/**
 * The lowest and the highest value of a setting.
 *
 * @param deliveryTimeoutMs DELIVERY_TIMEOUT, in milliseconds
 */
export function boundsOf(name: NumberName, deliveryTimeoutMs: number): { min: number; max: number } {
  const { min, max = deliveryTimeoutMs } = numberSetting(name);
  return { min: Math.min(min, max), max };
}

/** A rate limit with its period: `30 deliveries a minute`, `1 delivery every 2 hours`. */
export function rateInWords(
  limit: number,
  { ratePeriodSeconds = 1 }: { ratePeriodSeconds?: number },
): string {
  const deliveries = `${limit.toLocaleString("en")} ${limit === 1 ? "delivery" : "deliveries"}`;
  const period = periodInWords(ratePeriodSeconds);
  if (!period.startsWith("1 ")) return `${deliveries} every ${period}`;
  return `${deliveries} ${period.replace("1", period === "1 hour" ? "an" : "a")}`;
}
