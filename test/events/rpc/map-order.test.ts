import { clone, equals, type Message, toBinary } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import fc from "fast-check";
import { expect, test } from "vitest";
import { sortMaps } from "../../../src/events/rpc/sort-maps.ts";
import { arbitraryMessage } from "../../api/json/arbitrary-messages.ts";
import { arbitraryType } from "../../api/json/arbitrary-types.ts";

/** Reverses the entries of each map in a message, at any depth. */
function reverseMaps(message: ReflectMessage): void {
  for (const field of message.fields.filter((each) => message.isSet(each))) {
    const value = message.get(field);
    if (field.fieldKind === "map") {
      const entries = [...message.get(field)].reverse();
      message.get(field).clear();
      for (const [key, each] of entries) message.get(field).set(key, each);
    }
    if (!field.message) continue;
    const messages = field.fieldKind === "message" ? [value] : (value as Iterable<unknown>);
    for (const each of messages as Iterable<ReflectMessage | [unknown, ReflectMessage]>)
      reverseMaps(Array.isArray(each) ? each[1] : each);
  }
}

test("an event has the same bytes, whatever the order in which its client writes the entries of maps", () => {
  const typed = arbitraryType.chain((desc) =>
    arbitraryMessage(desc).map(({ message }) => ({ desc, message: message as Message })),
  );
  fc.assert(
    fc.property(typed, ({ desc, message }) => {
      const [sorted, reversed] = [clone(desc, message), clone(desc, message)];
      reverseMaps(reflect(desc, reversed));
      for (const each of [sorted, reversed]) sortMaps(desc, each);
      expect(toBinary(desc, reversed)).toEqual(toBinary(desc, sorted));
      expect(equals(desc, sorted, message)).toBe(true);
    }),
  );
});
