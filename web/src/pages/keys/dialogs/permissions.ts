import { Permission } from "../../../../../gen/webhook/v1/options_pb.ts";

/** A permission, in words. */
export interface PermissionInWords {
  permission: Permission;
  /** The name in lists: "Read". */
  label: string;
  meaning: string;
}

/** Every permission, in the order in which people need them. */
export const PERMISSIONS: readonly PermissionInWords[] = [
  {
    permission: Permission.READ_ADMINISTRATIVE_DATA,
    label: "Read",
    meaning: "See webhooks, deliveries and their attempts, with the payloads, and the statistics.",
  },
  {
    permission: Permission.WRITE_ADMINISTRATIVE_DATA,
    label: "Write",
    meaning:
      "Register, pause and delete webhooks, read and rotate their signing secrets, send deliveries again.",
  },
  {
    permission: Permission.PUBLISH_EVENTS,
    label: "Publish",
    meaning: "Publish the events that are delivered. For internal callers.",
  },
  {
    permission: Permission.MANAGE_API_KEYS,
    label: "Manage keys",
    meaning:
      "Create, rotate, revoke and remove keys and installed apps. The highest permission: a key without an app that has it can make a key that may do everything.",
  },
];
