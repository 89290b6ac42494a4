import type { ApiKey } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";

/** A key that may or may not take over the webhooks of another, as a choice. */
export interface Heir {
  value: string;
  label: string;
  disabled: boolean;
}

/** The keys that can take over a revoked key's webhooks. Keys that may not subscribe to their event types are marked. */
export function heirsOf(
  revoked: ApiKey | undefined,
  keys: readonly ApiKey[],
  webhooks: readonly Webhook[],
): Heir[] {
  const apps = new Set(webhooks.map((webhook) => webhook.application));
  const processes = [...new Set(webhooks.map((webhook) => webhook.webhookProcess))];
  return keys
    .filter((key) => key.id !== revoked?.id && !key.revoked)
    .map((key) => {
      const { allowedProcesses: allowed } = key;
      const refused = allowed.length === 0 ? [] : processes.filter((process) => !allowed.includes(process));
      const name = `${key.name} (${key.prefix}…)`;
      const { installedApplicationId: app } = key;
      if (app !== undefined && [...apps].some((each) => each !== app)) {
        return { value: key.id, label: `${name}, of another app`, disabled: true };
      }
      return {
        value: key.id,
        label: refused.length === 0 ? name : `${name}, not for ${refused.map(processName).join(", ")}`,
        disabled: refused.length > 0,
      };
    })
    .sort((a, b) => Number(a.disabled) - Number(b.disabled) || a.label.localeCompare(b.label));
}
