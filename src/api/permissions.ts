import { Permission, PermissionSchema } from "../../gen/webhook/v1/options_pb.ts";

const names = new Map<number, string>(
  PermissionSchema.values.map((value) => [value.number, value.name.slice("PERMISSION_".length)]),
);

/** A permission as the contract spells it, such as `Write_Administrative_Data`; unknown numbers as text. */
export function permissionName(permission: number): string {
  const name = names.get(permission);
  if (name === undefined) return String(permission);
  return name
    .split("_")
    .map((word) => word.charAt(0) + word.slice(1).toLowerCase())
    .join("_");
}

/** Whether a number is a permission that a key can have. */
export function isPermission(number: number): boolean {
  return number !== Permission.UNSPECIFIED && names.has(number);
}

/** Every permission that a key can have, for messages. */
export function permissionChoices(): string {
  return PermissionSchema.values
    .filter((value) => value.number !== Permission.UNSPECIFIED)
    .map((value) => permissionName(value.number))
    .join(", ");
}
