import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";

/** The names of members that may be null, undefined, or missing. */
type Optional<T> = {
  [K in keyof T]-?: null extends T[K] ? K : undefined extends T[K] ? K : never;
}[keyof T];

/** The fields of a message, except some that a row of the database has in another form. */
export type FieldsOf<Message, Except extends keyof Message = never> = Omit<Message, `$${string}` | Except>;

/** The members of an object that have a value: neither null nor undefined. For optional fields, which a message leaves out. */
export function present<T extends object>(
  members: T,
): Omit<T, Optional<T>> & { [K in Optional<T>]?: NonNullable<T[K]> } {
  const some = Object.entries(members).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(some) as ReturnType<typeof present<T>>;
}

/** A time as messages have it; undefined for none. */
export const timestampOf = (time: Date | null | undefined): Timestamp | undefined =>
  time ? timestampFromDate(time) : undefined;
