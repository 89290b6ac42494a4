import type { ApiKey } from "../../../../../gen/webhook/v1/api_key_pb.ts";

/**
 * Whether somebody who is signed in with a key can rotate, revoke and remove another key. A key of an installed app
 * manages keys with at most its own rights; a key without an app manages all.
 */
export function mayManage(own: ApiKey | undefined, key: ApiKey): boolean {
  if (own?.installedApplicationId === undefined) return true;
  const { permissions, allowedProcesses: processes } = own;
  if (!key.permissions.every((each) => permissions.includes(each))) return false;
  if (processes.length === 0) return true;
  return key.allowedProcesses.length > 0 && key.allowedProcesses.every((each) => processes.includes(each));
}

/** Whether somebody who is signed in with a key can change quotas: a key of an installed app could lift its own. */
export function maySetQuotas(own: ApiKey | undefined): boolean {
  return own?.installedApplicationId === undefined;
}
