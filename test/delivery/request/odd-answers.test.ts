import tls from "node:tls";
import { expect, test } from "vitest";
import { holdTime } from "../../support/held-time.ts";
import { localCertificate } from "../../support/receivers.ts";
import { until } from "../../support/wait.ts";
import { aClient, listening, send } from "../http-parts.ts";
import table from "./odd-answers.json" with { type: "json" };
import { answering, ODD_ANSWERS } from "./odd-answers.ts";

/** What a client says of an answer, and what this service records: `200`, `200, then …` or an error. */
interface Row {
  curl: string;
  requests: string;
  go: string;
  /** The status that this service records; null for none. */
  ours: number | null;
  /** Why it differs from one of the others; missing if it differs from none. */
  why?: string;
}
const rows = table.answers as Record<string, Row>;
const certificate = await localCertificate();

const statusOf = (words: string) => (/^\d/.test(words) ? Number.parseInt(words, 10) : null);

test("the table of odd answers has each answer, and a reason for each difference", () => {
  expect(Object.keys(rows)).toEqual(ODD_ANSWERS.map(({ name }) => name));
  expect(ODD_ANSWERS.length).toBeGreaterThan(60);
  for (const [name, { curl, requests, go, ours, why }] of Object.entries(rows)) {
    const others = [curl, requests, go].map(statusOf);
    const differs = others.some((each) => each !== ours);
    expect([name, differs]).toEqual([name, why !== undefined]);
    const [first = null] = others;
    // What all others take is never refused.
    if (first !== null && others.every((each) => each === first)) expect([name, ours]).toEqual([name, first]);
  }
});

test.each(ODD_ANSWERS)(
  "the status of an odd answer counts if others take it, and the next request gets nothing of it: $name",
  async ({ name, parts, ending }) => {
    const { origin } = await listening(answering(certificate, { parts, ending }));
    const client = aClient();
    const recorded = async () => {
      const { status, delivered, error } = await send(client, origin);
      return { status, delivered, hasError: error !== null };
    };
    const { ours } = rows[name] as Row;
    const delivered = ours !== null && ours >= 200 && ours <= 299;
    const expected = { status: ours, delivered };
    expect(await recorded()).toMatchObject(expected);
    expect(await recorded()).toMatchObject(expected);
  },
);

const ODD = "X-Odd : 1\r\n";
const BUSY = "HTTP/1.1 429 Slow Down\r\n";
const RETRY = "Retry-After: 7\r\n";
const CHUNKED = "Transfer-Encoding: chunked\r\n";
const LENGTH = "Content-Length: 2\r\n";
const CHUNKS = "2\r\nno\r\n0\r\n\r\n";

test.each<[string, string[]]>([
  ["has both lengths", [`${BUSY}${RETRY}${CHUNKED}${LENGTH}\r\n${CHUNKS}`]],
  ["has the same length twice", [`${BUSY}${LENGTH}${RETRY}${LENGTH}\r\nno`]],
  ["has unequal lengths", [`${BUSY}${LENGTH}Content-Length: 9\r\n${RETRY}\r\nno`]],
  ["has an odd header", [`${BUSY}${ODD}${RETRY}${LENGTH}\r\nno`]],
  ["has an odd header and comes in parts", [BUSY, ODD, RETRY, LENGTH, "\r\n", "n", "o"]],
  [
    "has an odd header and chunks that come in parts",
    [`${BUSY}${ODD}${RETRY}${CHUNKED}\r\n2\r\nn`, "o\r\n0\r\n\r\n"],
  ],
  ["folds the header", [`${BUSY}Retry-After:\r\n 7\r\n${LENGTH}\r\nno`]],
  ["ends its lines with LF", [`${BUSY}${RETRY}${LENGTH}\r\nno`.replaceAll("\r", "")]],
  ["follows 100 Continue", ["HTTP/1.1 100 Continue\r\n\r\n", `${BUSY}${RETRY}${LENGTH}\r\nno`]],
  ["has 60 KiB of headers", [`${BUSY}X: ${"x".repeat(61_440)}\r\n${RETRY}${LENGTH}\r\nno`]],
])("an answer that %s is read to its end", async (_what, parts) => {
  const { origin } = await listening(answering(certificate, { parts, ending: "stay" }));
  const outcome = await send(aClient(), origin);
  expect(outcome).toMatchObject({ status: 429, retryAfterMs: 7_000, responseStart: "no", failure: null });
});

test.each([
  ["few lines", `X: ${"x".repeat(100_000)}\r\n`],
  ["many lines", "X: 1\r\n".repeat(100_000)],
])("of more than 64 KiB of headers in %s, the first are read", async (_lines, more) => {
  const parts = [`${BUSY}${RETRY}${more}\r\nno`];
  const { origin, open } = await listening(answering(certificate, { parts, ending: "stay" }));
  const outcome = await send(aClient(), origin);
  expect(outcome).toMatchObject({ status: 429, retryAfterMs: 7_000, error: "Retry-After: 7 s" });
  await until(() => open.size === 0);
});

test("informational responses without end are an error", async () => {
  const server = tls.createServer(certificate, (socket) => {
    const more = () => {
      while (socket.write("HTTP/1.1 100 Continue\r\n\r\n".repeat(100))) if (socket.destroyed) return;
    };
    socket
      .on("error", () => {})
      .on("drain", more)
      .once("data", more);
  });
  const { origin } = await listening(server);
  const error = expect.stringMatching(/^response headers too large; .*UND_ERR_HEADERS_OVERFLOW/);
  expect(await send(aClient(), origin)).toMatchObject({ status: null, error, failure: "webhook" });
});

test.each([
  [200, "HTTP/1.1 200 OK\r\n", null],
  [429, `${BUSY}${RETRY}X-`, "Retry-After: 7 s"],
  [null, "HTTP/1.1 20", expect.stringMatching(/^no response within 1 s; /)],
])("status %s decides when the headers do not end in time", async (status, start, error) => {
  const { origin } = await listening(answering(certificate, { parts: [start], ending: "stay" }));
  const { origin: other } = await listening(
    answering(certificate, { parts: ["HTTP/1.1 204 None\r\n\r\n"], ending: "stay" }),
  );
  const client = aClient();
  const { pass } = holdTime();
  const sent = send(client, origin, { timeoutMs: 1_000 });
  // By the last of these, what came before has been read.
  for (let n = 0; n < 3; n += 1) await send(client, other);
  pass(1_000);
  expect(await sent).toMatchObject({ status, error, failure: status === null ? "webhook timeout" : null });
});

test("a connection is used again after a usual answer, and closed after an odd one or garbage", async () => {
  const usual = `HTTP/1.1 200 OK\r\n${LENGTH}\r\nok`;
  const answers = [
    usual,
    usual,
    usual.replace("\r\n", `\r\n${ODD}`),
    usual,
    `${usual}garbage`,
    usual,
    `${usual}HTTP/1.1 500 Other\r\n${LENGTH}\r\nno`,
    usual,
  ];
  const connections: number[] = [];
  let opened = 0;
  const server = tls.createServer(certificate, (socket) => {
    opened += 1;
    const number = opened;
    socket
      .on("error", () => {})
      .on("data", (chunk: Buffer) => {
        if (!chunk.toString("latin1").endsWith("{}")) return;
        socket.write(answers[connections.length] ?? usual);
        connections.push(number);
      });
  });
  const { origin } = await listening(server);
  const client = aClient();
  for (const _ of answers)
    expect(await send(client, origin)).toMatchObject({ status: 200, responseStart: "ok", error: null });
  expect(connections).toEqual([1, 1, 1, 2, 2, 3, 3, 4]);
});

test("a secret that an odd answer repeats in chunks is hidden", async () => {
  const parts = [`HTTP/1.1 400 No\r\n${CHUNKED}${LENGTH}\r\n8\r\ntok-0123\r\n8\r\n456789ab\r\n0\r\n\r\n`];
  const { origin } = await listening(answering(certificate, { parts, ending: "stay" }));
  const hidden = ["tok-0123456789ab"];
  expect(await send(aClient(), origin, { hidden })).toMatchObject({ status: 400, responseStart: "[hidden]" });
});
