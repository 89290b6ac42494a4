import { type DescMethod, getOption, hasOption } from "@bufbuild/protobuf";
import { Permission, PermissionSchema, required_permission } from "../../gen/webhook/v1/options_pb.ts";

/** A permission as the contract spells it, such as `Write_Administrative_Data`; unknown numbers as text. */
export function permissionName(permission: number): string {
  const name = PermissionSchema.values.find(({ number }) => number === permission)?.localName;
  if (name === undefined) return String(permission);
  return name
    .split("_")
    .map((word) => word.charAt(0) + word.slice(1).toLowerCase())
    .join("_");
}

/** Whether a number is a permission that a key can have. */
export function isPermission(number: number): boolean {
  return (
    number !== Permission.UNSPECIFIED && PermissionSchema.values.some((value) => value.number === number)
  );
}

/** Options are looked up once a method: looking takes longer than all else that the gate does. */
const needed = new WeakMap<DescMethod, Permission | undefined>();

/** The permission that the method needs. Undefined for methods that no key may call. */
export function neededPermission(method: DescMethod): Permission | undefined {
  if (!needed.has(method)) {
    const option = hasOption(method, required_permission)
      ? getOption(method, required_permission)
      : undefined;
    needed.set(method, option);
  }
  return needed.get(method);
}
