import tls from "node:tls";
import type { Certificate } from "../../../demo/certificates.ts";

/** An answer that HTTP/1.1 does not allow, or that few receivers give, as bytes in latin1. */
export interface OddAnswer {
  name: string;
  /** Written one after another, each in its own TLS record. */
  parts: readonly string[];
  /** What the receiver does then: leaves the connection open, ends it, or ends it without ending TLS. */
  ending: "stay" | "close" | "reset";
}

const OK = "HTTP/1.1 200 OK\r\n";
const LENGTH = "Content-Length: 2\r\n";
const CHUNKED = "Transfer-Encoding: chunked\r\n";
const CHUNKS = "2\r\nok\r\n0\r\n\r\n";
/** A proper answer with other lines in the middle. */
const withLines = (lines: string) => `${OK}${lines}${LENGTH}\r\nok`;
const withStatusLine = (line: string) => `${line}\r\n${LENGTH}\r\nok`;
/** Headers of 1 KiB each. */
const kibibytes = (count: number) =>
  Array.from({ length: count }, (_, n) => `X-${String(n).padStart(3, "0")}: ${"v".repeat(1_015)}\r\n`).join(
    "",
  );

const STAYS: Record<string, string | string[]> = {
  "chunked, then Content-Length": `${OK}${CHUNKED}${LENGTH}\r\n${CHUNKS}`,
  "Content-Length, then chunked": `${OK}${LENGTH}${CHUNKED}\r\n${CHUNKS}`,
  "chunked with Content-Length: 0": `${OK}Content-Length: 0\r\n${CHUNKED}\r\n${CHUNKS}`,
  "chunked with an invalid Content-Length": `${OK}Content-Length: abc\r\n${CHUNKED}\r\n${CHUNKS}`,
  "chunked twice": `${OK}${CHUNKED}${CHUNKED}\r\n${CHUNKS}`,
  "Transfer-Encoding: chunked, chunked": `${OK}Transfer-Encoding: chunked, chunked\r\n\r\n${CHUNKS}`,
  "Transfer-Encoding: CHUNKED": `${OK}Transfer-Encoding: CHUNKED\r\n\r\n${CHUNKS}`,
  "Transfer-Encoding: identity with Content-Length": withLines("Transfer-Encoding: identity\r\n"),
  "Transfer-Encoding: gzip, chunked": `${OK}Transfer-Encoding: gzip, chunked\r\n\r\n${CHUNKS}`,
  "Transfer-Encoding: xchunked with Content-Length": withLines("Transfer-Encoding: xchunked\r\n"),
  "Transfer-Encoding without a value, with Content-Length": withLines("Transfer-Encoding:\r\n"),
  "Transfer-Encoding with a space before the colon": `${OK}Transfer-Encoding : chunked\r\n\r\n${CHUNKS}`,
  "folded Transfer-Encoding": `${OK}Transfer-Encoding:\r\n chunked\r\n\r\n${CHUNKS}`,
  "chunked in HTTP/1.0": `HTTP/1.0 200 OK\r\n${CHUNKED}\r\n${CHUNKS}`,
  "12 KiB of headers": withLines(kibibytes(12)),
  "20 KiB of headers": withLines(kibibytes(20)),
  "20 KiB in one header": withLines(`X: ${"v".repeat(20_480)}\r\n`),
  "60 KiB of headers": withLines(kibibytes(60)),
  "60 KiB in one header": withLines(`X: ${"v".repeat(61_440)}\r\n`),
  "70 KiB of headers": withLines(kibibytes(70)),
  "70 KiB in one header": withLines(`X: ${"v".repeat(71_680)}\r\n`),
  "70 KiB of headers, the length before them": `${OK}${LENGTH}${kibibytes(70)}\r\nok`,
  "95 KiB of headers, chunked": `${OK}${CHUNKED}${kibibytes(95)}\r\n${CHUNKS}`,
  "400 KiB of headers": withLines(kibibytes(400)),
  "90 headers": withLines("X: 1\r\n".repeat(89)),
  "200 headers": withLines("X: 1\r\n".repeat(199)),
  "a space before a colon": withLines("X-A : 1\r\n"),
  "a tab before a colon": withLines("X-A\t: 1\r\n"),
  "Content-Length with a space before the colon": `${OK}Content-Length : 2\r\n\r\nok`,
  "a header folded with a space": withLines("X-A: 1\r\n 2\r\n"),
  "a header folded with a tab": withLines("X-A: 1\r\n\t2\r\n"),
  "a header folded with bare LF": withLines("X-A: 1\n 2\r\n"),
  "a folded first line": withLines(" X-A: 1\r\n"),
  "a line of spaces between headers": withLines("X-A: 1\r\n  \r\n"),
  "folded Content-Length": `${OK}Content-Length:\r\n 2\r\n\r\nok`,
  "the same Content-Length twice": withLines(LENGTH),
  "two Content-Lengths": withLines("Content-Length: 1\r\n"),
  "two Content-Lengths, the longer first": withLines("Content-Length: 3\r\n"),
  "Content-Length: 2, 2": `${OK}Content-Length: 2, 2\r\n\r\nok`,
  "Content-Length: 2, 3": `${OK}Content-Length: 2, 3\r\n\r\nok`,
  "Content-Length: abc": `${OK}Content-Length: abc\r\n\r\nok`,
  "Content-Length: -1": `${OK}Content-Length: -1\r\n\r\nok`,
  "Content-Length: +2": `${OK}Content-Length: +2\r\n\r\nok`,
  "Content-Length: 0x2": `${OK}Content-Length: 0x2\r\n\r\nok`,
  "Content-Length: 2.0": `${OK}Content-Length: 2.0\r\n\r\nok`,
  "Content-Length: 002": `${OK}Content-Length: 002\r\n\r\nok`,
  "Content-Length: 2 and spaces": `${OK}Content-Length:   2   \r\n\r\nok`,
  "Content-Length of a different case": `${OK}CONTENT-length:2\r\n\r\nok`,
  "Content-Length with a line end of bare LF": `${OK}Content-Length: 2\n\r\nok`,
  "lines that end in bare LF": `${OK}${LENGTH}\r\nok`.replaceAll("\r", ""),
  "a status line that ends in bare LF": `HTTP/1.1 200 OK\n${LENGTH}\r\nok`,
  "a header that ends in bare LF": withLines("X-A: 1\n"),
  "an empty line of bare LF": `${OK}${LENGTH}\nok`,
  "a bare CR in a header": withLines("X-A: 1\r2\r\n"),
  "lines that end in CR CR LF": `${OK}${LENGTH}\r\nok`.replaceAll("\r\n", "\r\r\n"),
  "no reason": withStatusLine("HTTP/1.1 200 "),
  "no reason and no space": withStatusLine("HTTP/1.1 200"),
  "no space before the reason": withStatusLine("HTTP/1.1 200OK"),
  "two spaces before the status": withStatusLine("HTTP/1.1  200 OK"),
  "tabs in the status line": withStatusLine("HTTP/1.1\t200\tOK"),
  "a tab before the reason": withStatusLine("HTTP/1.1 200\tOK"),
  "two spaces before the reason": withStatusLine("HTTP/1.1 200  OK"),
  "a space at the end of the status line": withStatusLine("HTTP/1.1 200 OK "),
  "a reason in UTF-8": withStatusLine("HTTP/1.1 200 \xc3\x9cbernommen"),
  "a reason in latin1": withStatusLine("HTTP/1.1 200 \xdcbernommen"),
  "NUL in the reason": withStatusLine("HTTP/1.1 200 O\0K"),
  "ESC in the reason": withStatusLine("HTTP/1.1 200 \x1b[1mOK"),
  "a reason of 20 KiB": withStatusLine(`HTTP/1.1 200 ${"O".repeat(20_480)}`),
  "a reason of 70 KiB": withStatusLine(`HTTP/1.1 200 ${"O".repeat(71_680)}`),
  "a space before the status line": withStatusLine(" HTTP/1.1 200 OK"),
  "HTTP/1.0": withStatusLine("HTTP/1.0 200 OK"),
  "HTTP/1.0 with keep-alive": `HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n${LENGTH}\r\nok`,
  "HTTP/1.2": withStatusLine("HTTP/1.2 200 OK"),
  "HTTP/1.9": withStatusLine("HTTP/1.9 200 OK"),
  "HTTP/2.0": withStatusLine("HTTP/2.0 200 OK"),
  "HTTP/2": withStatusLine("HTTP/2 200 OK"),
  "HTTP/3.0": withStatusLine("HTTP/3.0 200 OK"),
  "HTTP/3": withStatusLine("HTTP/3 200 OK"),
  "HTTP/4.0": withStatusLine("HTTP/4.0 200 OK"),
  "HTTP/0.9 in the status line": withStatusLine("HTTP/0.9 200 OK"),
  "HTTP/1": withStatusLine("HTTP/1 200 OK"),
  "HTTP/1.": withStatusLine("HTTP/1. 200 OK"),
  "HTTP/1.01": withStatusLine("HTTP/1.01 200 OK"),
  "HTTP/1.10": withStatusLine("HTTP/1.10 200 OK"),
  "HTTP/01.1": withStatusLine("HTTP/01.1 200 OK"),
  "HTTP/10.1": withStatusLine("HTTP/10.1 200 OK"),
  "HTTP/1,1": withStatusLine("HTTP/1,1 200 OK"),
  "HTTP/1.x": withStatusLine("HTTP/1.x 200 OK"),
  "HTTP/ 1.1": withStatusLine("HTTP/ 1.1 200 OK"),
  "no version": withStatusLine("HTTP 200 OK"),
  "http/1.1": withStatusLine("http/1.1 200 OK"),
  "Http/1.1": withStatusLine("Http/1.1 200 OK"),
  "HTTPS/1.1": withStatusLine("HTTPS/1.1 200 OK"),
  ICY: withStatusLine("ICY 200 OK"),
  "RTSP/1.0": withStatusLine("RTSP/1.0 200 OK"),
  "a status line of CGI": `Status: 200 OK\r\n${LENGTH}\r\nok`,
  "status 000": withStatusLine("HTTP/1.1 000 None"),
  "status 099": withStatusLine("HTTP/1.1 099 Low"),
  "status 20": withStatusLine("HTTP/1.1 20 OK"),
  "status 2": withStatusLine("HTTP/1.1 2 OK"),
  "status 1000": withStatusLine("HTTP/1.1 1000 High"),
  "status 2000": withStatusLine("HTTP/1.1 2000 High"),
  "status 2x0": withStatusLine("HTTP/1.1 2x0 OK"),
  "status -200": withStatusLine("HTTP/1.1 -200 OK"),
  "status +20": withStatusLine("HTTP/1.1 +20 OK"),
  "status 200.1": withStatusLine("HTTP/1.1 200.1 OK"),
  "status OK": withStatusLine("HTTP/1.1 OK"),
  "no status": withStatusLine("HTTP/1.1"),
  "status 299": withStatusLine("HTTP/1.1 299 Fine"),
  "status 451": withStatusLine("HTTP/1.1 451 No"),
  "status 600": withStatusLine("HTTP/1.1 600 High"),
  "status 999": withStatusLine("HTTP/1.1 999 High"),
  "302 without Location": withStatusLine("HTTP/1.1 302 Found"),
  "401 without a challenge": withStatusLine("HTTP/1.1 401 Unauthorized"),
  "407 without a proxy": withStatusLine("HTTP/1.1 407 Proxy Authentication Required"),
  "408 with Connection: close": `HTTP/1.1 408 Slow\r\nConnection: close\r\n${LENGTH}\r\nok`,
  "100 first": `HTTP/1.1 100 Continue\r\n\r\n${withLines("")}`,
  "100 first, on its own": ["HTTP/1.1 100 Continue\r\n\r\n", withLines("")],
  "100 with headers first": `HTTP/1.1 100 Continue\r\nX: 1\r\n${LENGTH}\r\n${withLines("")}`,
  "100 in bare LF first": `HTTP/1.1 100 Continue\n\n${withLines("")}`,
  "100 in HTTP/1.0 first": `HTTP/1.0 100 Continue\r\n\r\n${withLines("")}`,
  "100 without a reason first": `HTTP/1.1 100\r\n\r\n${withLines("")}`,
  "102 first": `HTTP/1.1 102 Processing\r\n\r\n${withLines("")}`,
  "103 first": `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${withLines("")}`,
  "103 with a space before the colon first": `HTTP/1.1 103 Early Hints\r\nLink : </a>\r\n\r\n${withLines("")}`,
  "199 first": `HTTP/1.1 199 Wait\r\n\r\n${withLines("")}`,
  "100, 102, 103 and 100 first": [
    ...[100, 102, 103, 100].map((status) => `HTTP/1.1 ${status} Wait\r\n\r\n`),
    withLines(""),
  ],
  "100 twenty times first": `${"HTTP/1.1 100 Continue\r\n\r\n".repeat(20)}${withLines("")}`,
  "100 cut between its bytes": ["HTTP/1", ".1 10", "0 Continue\r", "\n\r", `\n${OK}`, `${LENGTH}\r\nok`],
  "101 with Upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
  "101 without Upgrade": "HTTP/1.1 101 Switching Protocols\r\n\r\n",
  "101, then 200": `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n${withLines("")}`,
  "200 with Upgrade": withLines("Connection: Upgrade\r\nUpgrade: h2,h2c\r\n"),
  "204 with a body": `HTTP/1.1 204 No Content\r\n${LENGTH}\r\nok`,
  "204 with chunks": `HTTP/1.1 204 No Content\r\n${CHUNKED}\r\n${CHUNKS}`,
  "204 with a body and no length": "HTTP/1.1 204 No Content\r\n\r\nok",
  "205 with a body": `HTTP/1.1 205 Reset Content\r\n${LENGTH}\r\nok`,
  "304 with a body": `HTTP/1.1 304 Not Modified\r\n${LENGTH}\r\nok`,
  "a header in UTF-8": withLines("X-A: \xc3\xbc\r\n"),
  "a header in latin1": withLines("X-A: \xfc\r\n"),
  "NUL in a header": withLines("X-A: a\0b\r\n"),
  "ESC in a header": withLines("X-A: a\x1bb\r\n"),
  "DEL in a header": withLines("X-A: a\x7fb\r\n"),
  "NUL in a header's name": withLines("X-\0: 1\r\n"),
  "UTF-8 in a header's name": withLines("X-\xc3\xbc: 1\r\n"),
  "an empty header's name": withLines(": 1\r\n"),
  "a space in a header's name": withLines("X A: 1\r\n"),
  "brackets in a header's name": withLines("X(A)[B]: 1\r\n"),
  "a line without a colon": withLines("X-A\r\n"),
  "an empty value": withLines("X-A:\r\n"),
  "an invalid chunk size": `${OK}${CHUNKED}\r\nxyz\r\nok\r\n0\r\n\r\n`,
  "an empty chunk size": `${OK}${CHUNKED}\r\n\r\nok\r\n0\r\n\r\n`,
  "a negative chunk size": `${OK}${CHUNKED}\r\n-2\r\nok\r\n0\r\n\r\n`,
  "a chunk size with 0x": `${OK}${CHUNKED}\r\n0x2\r\nok\r\n0\r\n\r\n`,
  "a chunk size of 17 digits": `${OK}${CHUNKED}\r\n10000000000000002\r\nok\r\n0\r\n\r\n`,
  "spaces after a chunk size": `${OK}${CHUNKED}\r\n2  \r\nok\r\n0\r\n\r\n`,
  "a chunk extension": `${OK}${CHUNKED}\r\n2;a=b;c\r\nok\r\n0\r\n\r\n`,
  "a chunk extension of 3 KiB": `${OK}${CHUNKED}\r\n2;a=${"v".repeat(3_072)}\r\nok\r\n0\r\n\r\n`,
  "a chunk extension of 20 KiB": `${OK}${CHUNKED}\r\n2;a=${"v".repeat(20_480)}\r\nok\r\n0\r\n\r\n`,
  "chunks with bare LF": `${OK}${CHUNKED}\r\n2\nok\n0\n\n`,
  "a longer chunk than its size": `${OK}${CHUNKED}\r\n2\r\nokay\r\n0\r\n\r\n`,
  "a trailer": `${OK}${CHUNKED}\r\n2\r\nok\r\n0\r\nX-A: 1\r\n\r\n`,
  "an invalid trailer": `${OK}${CHUNKED}\r\n2\r\nok\r\n0\r\nX A\r\n\r\n`,
  "garbage after the body": withLines("").replace("ok", "ok garbage"),
  "garbage after the last chunk": `${OK}${CHUNKED}\r\n${CHUNKS}garbage\r\n\r\n`,
  "another answer after it": `${withLines("")}${withStatusLine("HTTP/1.1 500 Wrong")}`,
  "CR LF first": `\r\n${withLines("")}`,
  "CR LF twice first": `\r\n\r\n${withLines("")}`,
  "CR LF first, on its own": ["\r\n", withLines("")],
  "LF first": `\n${withLines("")}`,
  "a line of garbage first": `garbage\r\n${withLines("")}`,
  "a byte order mark first": `\xef\xbb\xbf${withLines("")}`,
  "gzip that is none": withLines("Content-Encoding: gzip\r\n"),
  "br that is none": withLines("Content-Encoding: br\r\n"),
  "an unknown Content-Encoding": withLines("Content-Encoding: x-own\r\n"),
  "Keep-Alive: timeout=0": withLines("Keep-Alive: timeout=0\r\n"),
  "Connection: close, keep-alive": withLines("Connection: close, keep-alive\r\n"),
  "one byte at a time": [...withLines("X-A : 1\r\n")],
  "a cut between CR and LF": [`${OK}X-A : 1\r`, `\n${LENGTH}\r`, "\n\r", "\nok"],
  "a head in two parts": [OK, `${LENGTH}\r\nok`],
  "an odd head in two parts, its body in a third": [`${OK}X-A : 1\r\n`, `${LENGTH}\r\n`, "ok"],
};

const CLOSES: Record<string, string> = {
  "lines that end in bare CR": `${OK}${LENGTH}\r\nok`.replaceAll("\n", ""),
  "no headers": `${OK}\r\n`,
  "a body without a length": `${OK}\r\nok`,
  "a body without a length, in HTTP/1.0": "HTTP/1.0 200 OK\r\n\r\nok",
  "a body without a length, with keep-alive": `${OK}Connection: keep-alive\r\n\r\nok`,
  "Transfer-Encoding: gzip": `${OK}Transfer-Encoding: gzip\r\n\r\nok`,
  "the end without a byte": "",
  "the end within the status line": "HTTP/1.1 200 O",
  "the end within the version": "HTTP/1.",
  "the end after the status": "HTTP/1.1 200",
  "the end after the status line": OK,
  "the end within a header": `${OK}Content-Le`,
  "the end after a header": `${OK}X-A: 1\r\n`,
  "the end after a header that is odd": `${OK}X-A : 1\r\n`,
  "the end within the empty line": `${OK}${LENGTH}\r`,
  "the end after 100": "HTTP/1.1 100 Continue\r\n\r\n",
  "the end after 101": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
  "the end within the body": `${OK}Content-Length: 9\r\n\r\nok`,
  "the end before the body": `${OK}Content-Length: 9\r\n\r\n`,
  "the end within a chunk": `${OK}${CHUNKED}\r\n9\r\nok`,
  "the end before the last chunk": `${OK}${CHUNKED}\r\n2\r\nok\r\n`,
  "the end after the last chunk's size": `${OK}${CHUNKED}\r\n2\r\nok\r\n0\r\n`,
  "400, and the end within the body": "HTTP/1.1 400 Wrong\r\nContent-Length: 9\r\n\r\nok",
  "503 and Retry-After, and the end within a header": "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nX-",
  "text alone": "ok\r\n",
  "HTML alone (HTTP/0.9)": "<!doctype html>\r\n<title>ok</title>\r\n\r\n",
  "JSON alone": '{"ok":true}',
  "the greeting of a mail server": "220 mail.example ESMTP\r\n",
  "the greeting of SSH": "SSH-2.0-OpenSSH_9.2\r\n",
  "frames of HTTP/2": "\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64",
};

const RESETS: Record<string, string> = {
  "a broken connection after the status line": OK,
  "a broken connection within a header": `${OK}Content-Le`,
  "a broken connection within the body": `${OK}Content-Length: 9\r\n\r\nok`,
  "a broken connection within a body without a length": `${OK}\r\nok`,
};

export const ODD_ANSWERS: readonly OddAnswer[] = (
  [
    [STAYS, "stay"],
    [CLOSES, "close"],
    [RESETS, "reset"],
  ] as const
).flatMap(([answers, ending]) =>
  Object.entries(answers).map(([name, bytes]) => ({ name, parts: [bytes].flat(), ending })),
);

/** Creates a server that gives an answer to every request whose body is `{}`, each byte as it is. */
export function answering(certificate: Certificate, { parts, ending }: Omit<OddAnswer, "name">): tls.Server {
  return tls.createServer(certificate, async (socket) => {
    let request = "";
    socket
      .on("error", () => {})
      .on("data", (chunk: Buffer) => {
        request += chunk.toString("latin1");
        if (request.endsWith("\r\n\r\n{}")) void answer();
      });
    async function answer() {
      request = "";
      for (const part of parts) {
        await new Promise((resolve) => socket.write(part, "latin1", resolve));
        await new Promise((resolve) => setImmediate(resolve));
      }
      if (ending === "close") socket.end();
      if (ending === "reset") socket.destroy();
    }
  });
}
