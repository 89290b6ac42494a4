import { type DescMessage, isFieldSet, type Message } from "@bufbuild/protobuf";

/** Sorts the entries of each map in a message by key, at any depth. */
export function sortMaps(desc: DescMessage, message: Message): void {
  for (const field of desc.fields) {
    // Most fields are neither, and asking whether one is set takes longer than the rest.
    if (field.fieldKind !== "map" && !field.message) continue;
    if (!isFieldSet(message, field)) continue;
    const values = message as unknown as Record<string, object>;
    const { oneof, localName } = field;
    const value = oneof
      ? (values[oneof.localName] as { value: object }).value
      : (values[localName] as object);
    if (field.message) {
      const messages = field.fieldKind === "message" ? [value] : Object.values(value);
      for (const each of messages) sortMaps(field.message, each as Message);
    }
    if (field.fieldKind === "map") {
      const entries = Object.entries(value).sort(([first], [second]) => (first < second ? -1 : 1));
      values[localName] = Object.fromEntries(entries);
    }
  }
}
