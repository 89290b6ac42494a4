import { randomBytes } from "node:crypto";

/** A value in DER. */
export function der(tag: number, ...content: Uint8Array[]): Buffer {
  const length = content.reduce((sum, each) => sum + each.length, 0);
  const head =
    length < 0x80
      ? [tag, length]
      : length < 0x100
        ? [tag, 0x81, length]
        : length < 0x1_00_00
          ? [tag, 0x82, length >> 8, length & 0xff]
          : [tag, 0x83, length >> 16, (length >> 8) & 0xff, length & 0xff];
  return Buffer.concat([Buffer.from(head), ...content]);
}

export const sequence = (...content: Uint8Array[]) => der(0x30, ...content);
export const octets = (...content: Uint8Array[]) => der(0x04, ...content);
export const bits = (content: Uint8Array) => der(0x03, Buffer.from([0]), content);
/** An object identifier, from its content in hexadecimal. */
export const identifier = (hex: string) => der(0x06, Buffer.from(hex, "hex"));

/** A positive integer. */
export function integer(value: number | Uint8Array): Buffer {
  const bytes = typeof value === "number" ? Buffer.from([value]) : Buffer.from(value);
  return der(0x02, (bytes[0] as number) & 0x80 ? Buffer.concat([Buffer.from([0]), bytes]) : bytes);
}

/** A random odd number of this many bytes, with its highest bit set. */
export function oddNumber(bytes: number): Buffer {
  const number = randomBytes(bytes);
  number[0] = (number[0] as number) | 0x80;
  number[bytes - 1] = (number[bytes - 1] as number) | 1;
  return number;
}

/** PEM. */
export function pem(label: string, content: Uint8Array): string {
  const lines =
    Buffer.from(content)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
