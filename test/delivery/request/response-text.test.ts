import * as zlib from "node:zlib";
import { expect, onTestFinished, test, vi } from "vitest";
import { secretsIn } from "../../../src/delivery/request/additions.ts";
import { decompressed } from "../../../src/lib/egress/content-coding.ts";
import { headersOfSettings } from "../../../src/webhooks/index.ts";
import { aReceiver } from "../../support/receivers.ts";
import { aClient, send } from "../http-parts.ts";

/** A receiver that answers 400 with a body. */
const answering = (body: Buffer | string, headers: Record<string, string> = {}) =>
  aReceiver((_request, response) => {
    response.writeHead(400, headers).end(body);
    return undefined;
  });

const TEXT = '{"error":"the größe is wrong: 3 €"}';
const LATIN = "die Größe ist falsch";
const long = `${TEXT}${"äöü ".repeat(10_000)}`;
const noise = Buffer.alloc(812, Buffer.from("\x00\x89PNG\xff", "latin1"));

test.each<[what: string, body: Buffer | string, headers: Record<string, string>, shown: string]>([
  ["gzip", zlib.gzipSync(TEXT), { "content-encoding": "gzip" }, TEXT],
  ["x-gzip", zlib.gzipSync(TEXT), { "content-encoding": "X-GZIP" }, TEXT],
  ["deflate", zlib.deflateSync(TEXT), { "content-encoding": "deflate" }, TEXT],
  ["deflate without zlib's header", zlib.deflateRawSync(TEXT), { "content-encoding": "deflate" }, TEXT],
  ["brotli", zlib.brotliCompressSync(TEXT), { "content-encoding": "br" }, TEXT],
  ["no coding", TEXT, { "content-encoding": "identity" }, TEXT],
  ["more gzip than is kept", zlib.gzipSync(long), { "content-encoding": "gzip" }, long.slice(0, 500)],
  ["cut gzip", zlib.gzipSync(TEXT.repeat(9)).subarray(0, -12), { "content-encoding": "gzip" }, TEXT],
  ["no gzip", "plain text", { "content-encoding": "gzip" }, "gzip, 10 bytes"],
  ["an unknown coding", noise, { "content-encoding": "zstd" }, "zstd, 812 bytes"],
  ["two codings", noise, { "content-encoding": "gzip, br" }, "gzip, br, 812 bytes"],
  ["Latin-1", Buffer.from(LATIN, "latin1"), { "content-type": "text/plain; charset=ISO-8859-1" }, LATIN],
  ["Latin-1 without its name", Buffer.from(LATIN, "latin1"), {}, LATIN],
  ["a last byte of Latin-1", Buffer.from("caf\xe9", "latin1"), {}, "café"],
  [
    "Windows-1252",
    Buffer.from("3 \x80", "latin1"),
    { "content-type": 'text/plain;charset="windows-1252"' },
    "3 €",
  ],
  ["compressed Latin-1", zlib.gzipSync(Buffer.from(LATIN, "latin1")), { "content-encoding": "gzip" }, LATIN],
  ["UTF-8", TEXT, { "content-type": "text/plain; charset=utf-8" }, TEXT],
  ["an unknown charset", TEXT, { "content-type": "text/plain; charset=klingon" }, TEXT],
])("a response is shown as text: %s", async (_, body, headers, shown) => {
  const { url } = await answering(body, headers);
  const { responseStart, status } = await send(aClient(), url);
  expect([status, responseStart?.slice(0, shown.length)]).toEqual([400, shown]);
  expect(Buffer.byteLength(responseStart ?? "")).toBeLessThanOrEqual(1_024);
});

test("bytes that are no text are replaced, and headers in UTF-8 are read", async () => {
  const { url } = await answering(noise, { "x-error": Buffer.from("Größe").toString("latin1") });
  const { responseStart, responseHeaders } = await send(aClient(), url);
  expect(responseStart).toMatch(/^\uFFFD\uFFFDPNG\uFFFD/);
  expect(JSON.parse(responseHeaders ?? "[]").slice(0, 2)).toEqual(["x-error", "Größe"]);
});

test.each<[string, (text: string) => [Buffer | string, Record<string, string>]]>([
  ["in UTF-8", (text) => [text, {}]],
  ["in Latin-1", (text) => [Buffer.from(text, "latin1"), {}]],
  ["compressed", (text) => [zlib.gzipSync(text), { "content-encoding": "gzip" }]],
  ["as a server of Latin-1 writes it in UTF-8", (text) => [Buffer.from(text).toString("latin1"), {}]],
  ["in JSON of ASCII", (text) => [text.replaceAll("ä", "\\u00e4"), {}]],
])(
  "a secret with other characters than ASCII is hidden where a receiver repeats it %s",
  async (_, answer) => {
    const authentication = { kind: "basic", username: "käufer", password: "pässword-0123" } as const;
    const headers = headersOfSettings({ headers: [], authentication, tls: null });
    const { url, received } = await answering(...answer(`wrong: pässword-0123, ${"x".repeat(20)}`));
    const { responseStart } = await send(aClient(), url, { headers, hidden: secretsIn(headers) });
    expect(responseStart).toBe(`wrong: [hidden], ${"x".repeat(20)}`);
    const [scheme, credentials = ""] = received[0]?.headers.authorization?.split(" ") ?? [];
    expect([scheme, Buffer.from(credentials, "base64").toString()]).toEqual([
      "Basic",
      "käufer:pässword-0123",
    ]);
  },
);

test("of a body that expands to 50 MB, no more than some KiB are decompressed", () => {
  const zeros = Buffer.alloc(50_000_000);
  // As if it took no time, so that no pause follows.
  const usage = vi.spyOn(process, "threadCpuUsage").mockReturnValue({ user: 0, system: 0 });
  onTestFinished(() => usage.mockRestore());
  for (const [coding, body] of [
    ["gzip", zlib.gzipSync(zeros)],
    ["gzip", zlib.gzipSync(zeros).subarray(0, 1_024)],
    ["deflate", zlib.deflateSync(zeros)],
  ] as const)
    expect(decompressed(coding, body, 1_024)?.length ?? 0).toBeLessThanOrEqual(1_024);
  expect(decompressed("br", zlib.brotliCompressSync(zeros), 1_024)).toBeUndefined();
});

test("a slow decompression of brotli is followed by a pause, in which others keep the thread", () => {
  const body = zlib.brotliCompressSync(TEXT);
  const clock = vi.spyOn(performance, "now").mockReturnValue(0);
  const usage = vi.spyOn(process, "threadCpuUsage").mockReturnValue({ user: 10_000, system: 0 });
  onTestFinished(() => {
    clock.mockRestore();
    usage.mockRestore();
  });
  const at = (now: number) => {
    clock.mockReturnValue(now);
    return decompressed("br", body, 1_024)?.toString();
  };
  expect([at(0), at(499), at(500)]).toEqual([TEXT, undefined, TEXT]);
});
