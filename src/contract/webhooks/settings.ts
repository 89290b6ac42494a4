/** A setting that is a text. */
interface TextSetting {
  column: string;
  type: "text";
  isClaimed?: false;
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
    /** A value in that unit. */
    inWords: (shown: number) => string;
  };
}

/**
 * The settings of a webhook that are one value each. Their columns in queries, checks, messages, facts of the audit log and fields of
 * the settings page are made from this table. A new one is added here, to Webhook and UpdateWebhookRequest in webhook.proto, to a
 * migration, and where it is used.
 */
export const SETTINGS = {
  /** A name for people. */
  name: { column: "name", type: "text" },
  /** The maximum number of deliveries per second. */
  rateLimit: {
    column: "rate_limit",
    type: "int",
    min: 1,
    max: 10_000,
    unit: "deliveries a second",
    field: {
      label: "Rate limit",
      description: "First attempts and retries together. Deliveries beyond the limit wait.",
      none: "no limit",
      unit: "Deliveries a second",
      factor: 1,
      inWords: (shown) => `${shown.toLocaleString("en")} ${shown === 1 ? "delivery" : "deliveries"} a second`,
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
} as const satisfies Record<string, TextSetting | NumberSetting>;

export type SettingName = keyof typeof SETTINGS;
type ValueOf<Name extends SettingName> = (typeof SETTINGS)[Name]["type"] extends "int" ? number : string;

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
