import { randomBytes } from "node:crypto";

const MIB = 1_048_576;

/** A field of the wire format with a length, which may be a lie. */
function field(number: number, content: Uint8Array, length = content.length): Buffer {
  return Buffer.concat([varint(number * 8 + 2), varint(length), content]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = BigInt(value);
  for (; left > 127n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  return Buffer.from([...bytes, Number(left)]);
}

const text = (number: number, value: string) => field(number, Buffer.from(value));
/** A set of one file in the package `hostile`. @param parts its further fields */
const file = (...parts: Buffer[]) =>
  field(
    1,
    Buffer.concat([
      text(1, "hostile.proto"),
      text(2, "hostile"),
      text(3, "webhook/v1/options.proto"),
      text(12, "proto3"),
      ...parts,
    ]),
  );
/** A message of a file. @param parts its fields beside the name */
const message = (name: string, ...parts: Buffer[]) => field(4, Buffer.concat([text(1, name), ...parts]));
/** The field of a message that contains another one. */
const of = (type: string, number: number) =>
  field(
    2,
    Buffer.concat([
      text(1, `f${number}`),
      Buffer.from([0x18, ...varint(number), 0x20, 1, 0x28, 11]),
      text(6, `.hostile.${type}`),
    ]),
  );
/** The option `event_type` with this content. */
const option = (content: Buffer) => field(7, field(50_001, content));
const EVENT = option(Buffer.alloc(0));

/** An item so often that it fills a set. */
const filled = (item: Buffer, bytes = 12 * MIB) =>
  Buffer.concat(Array(Math.floor(bytes / item.length)).fill(item));

/** Wraps a content so often in a field that each level is within the next. */
function nested(number: number, levels: number): Buffer {
  let inner = text(1, "M");
  for (let n = 0; n < levels; n += 1) inner = Buffer.concat([text(1, "M"), field(number, inner)]);
  return inner;
}

/** Messages that each contain the next one twice, and the last one the first: paths without end. */
function doubling(count: number): Buffer {
  const name = (n: number) => `M${n % count}`;
  return file(
    ...Array.from({ length: count }, (_, n) =>
      message(name(n), of(name(n + 1), 1), of(name(n + 1), 2), ...(n === 0 ? [EVENT] : [])),
    ),
  );
}

function millionValues(): Buffer {
  const values = Array.from({ length: 1_000_000 }, (_, n) =>
    field(2, Buffer.concat([text(1, `V${n}`), Buffer.from([0x10]), varint(n)])),
  );
  return file(field(5, Buffer.concat([text(1, "Many"), ...values])));
}

/** File descriptor sets that are made to cost time or memory, by what they are; none can be registered. */
export function hostileSets(): Record<string, Buffer> {
  const importing = (path: string, imported: string) =>
    field(1, Buffer.concat([text(1, path), text(3, imported)]));
  return {
    "a million enum values": millionValues(),
    "16 MiB of garbage": randomBytes(16 * MIB - 100),
    "empty files": filled(field(1, Buffer.alloc(0))),
    "empty messages": file(filled(field(4, Buffer.alloc(0)))),
    "empty fields": file(message("M", filled(field(2, Buffer.alloc(0))))),
    "empty locations": file(field(9, filled(field(1, Buffer.alloc(0))))),
    "empty options": file(message("M", field(7, filled(field(999, Buffer.alloc(0)))))),
    "a name of 12 MiB": file(message("M".repeat(12 * MIB), EVENT)),
    "a length beyond the end": field(1, Buffer.from("abc"), 2 ** 31 - 1),
    "a length beyond the end, within a file": file(field(4, text(1, "M"), 12 * MIB)),
    "a length of 2^53": field(1, Buffer.from("abc"), 2 ** 53 - 1),
    "messages nested 100,000 deep": file(field(4, nested(3, 20_000))),
    "groups nested 1,000,000 deep": file(message("M", Buffer.alloc(1_000_000, 0x0b))),
    "messages that contain each other twice": doubling(60),
    "files that import each other": Buffer.concat([
      importing("a.proto", "b.proto"),
      importing("b.proto", "a.proto"),
    ]),
    "a file that imports itself": importing("a.proto", "a.proto"),
    "options of wrong types": file(
      message("M", field(7, Buffer.concat([varint(50_001 * 8), varint(2 ** 40)]))),
    ),
    "an option of lying lengths": file(message("M", option(field(2, Buffer.from("x"), 1_000_000)))),
  };
}
