import type { Socket } from "node:net";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ResponseHead } from "../../../src/lib/egress/response-head.ts";

/** What undici gets of what a socket receives in these parts, and the error that ends the connection. */
function read(parts: readonly string[]): { text: string; error: unknown } {
  const left = [...parts];
  let [text, error]: [string, unknown] = ["", undefined];
  const socket = {
    read: () => (left.length > 0 ? Buffer.from(left.shift() as string, "latin1") : null),
    destroy: (reason: unknown) => {
      error ??= reason;
    },
  } as unknown as Socket;
  const head = new ResponseHead();
  head.attach(socket);
  head.begin();
  while (left.length > 0) text += (socket.read() as Buffer | null)?.toString("latin1") ?? "";
  head.take();
  return { text, error };
}

/** Cuts a text at some of its places. */
const cut = (text: string, places: readonly number[]) => {
  const at = [...new Set([0, ...places.map((place) => place % (text.length + 1)), text.length])];
  at.sort((a, b) => a - b);
  return at.slice(1).map((end, index) => text.slice(at[index], end));
};
const places = fc.array(fc.nat(), { maxLength: 8 });

const name = fc.stringMatching(/^X-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}$/);
const value = fc.stringMatching(/^[\t -~\u00a0-\u00ff]{0,40}$/);
const headers = fc.array(fc.tuple(name, value), { maxLength: 10 });
const framing = fc.constantFrom("", "Content-Length: 2\r\n", "transfer-encoding: chunked\r\n");

test("a response that undici reads passes unchanged, in whatever parts it comes", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 200, max: 999 }),
      headers,
      framing,
      headers,
      places,
      (status, a, own, b, at) => {
        const [first, last] = [a, b].map((each) => each.map(([n, v]) => `${n}:${v}\r\n`).join(""));
        const response = `HTTP/1.1 ${status} OK\r\n${first}${own}${last}\r\nok`;
        expect(read(cut(response, at))).toEqual({ text: response, error: undefined });
      },
    ),
  );
});

const piece = fc.oneof(
  fc.constantFrom("HTTP/1.1 ", "200 OK", "100 Continue", "\r\n", "\n", "\r", " ", "\t", ":", ",", "\0"),
  fc.constantFrom(
    "Content-Length",
    "Transfer-Encoding",
    "chunked",
    "Connection",
    "X",
    "\xff",
    "2",
    "\r\n\r\n",
  ),
  fc.string({ maxLength: 5 }),
);

test("whatever a receiver sends, undici gets one final status line with valid headers, or nothing", () => {
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 60 }), fc.boolean(), places, (pieces, begins, at) => {
      const sent = `${begins ? "HTTP/1.1 200 OK\r\n" : ""}${pieces.join("")}`;
      const { text, error } = read(cut(sent, at));
      if (text === "") return;
      expect(error).toBeUndefined();
      expect(text).toMatch(/^HTTP\/1\.[01] [2-9]\d\d[^\r\n\0]*\r\n([\w!#$%&'*+.^`|~-]+:[^\r\n\0]*\r\n)*\r\n/);
      const [head = ""] = text.split("\r\n\r\n");
      expect(head.match(/\n(content-length|transfer-encoding):/gi)?.length ?? 0).toBeLessThanOrEqual(1);
    }),
    { numRuns: 2_000 },
  );
});
