import { expect, test } from "vitest";
import { invisibleCharacter, isBlank } from "../../src/contract/invisible-characters.ts";

test.each([
  "Shop",
  "Bäckerei Müller",
  "فروشگاه\u200cها",
  "क्\u200dष",
  "👩\u200d💻 Entwicklung",
  "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f} England",
  "❤\ufe0f",
  "سورة \u06dd",
  "a\u00a0b",
  "Αθήνα",
])("%s can be read", (text) => {
  expect([invisibleCharacter(text), isBlank(text)]).toEqual([undefined, false]);
});

test.each([
  ["a\u202eb", "U+202E"],
  ["a\u2066b", "U+2066"],
  ["a\u200eb", "U+200E"],
  ["a\u200bb", "U+200B"],
  ["a\u00adb", "U+00AD"],
  ["\ufeffa", "U+FEFF"],
  ["a\u2060b", "U+2060"],
  ["a\nb", "U+000A"],
  ["a\u0000b", "U+0000"],
  ["a\u2028b", "U+2028"],
])("%j holds an invisible character, %s", (text, name) => {
  expect(invisibleCharacter(text)).toBe(name);
});

test.each(["", " \t", "\u00a0", "\u200c\u200d", "\u200b", "\u3000"])("%j is blank", (text) => {
  expect(isBlank(text)).toBe(true);
});
