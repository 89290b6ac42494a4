import type { Socket } from "node:net";
import { errors } from "undici";

/** The maximum size of a response's status line and headers, in bytes. What is over it is dropped. */
export const MAX_HEAD_BYTES = 64 * 1_024;

/** Characters of a line in latin1: no control characters but tabs. */
const TEXT = "[\\t\\x20-\\x7e\\x80-\\xff]*";
const NAME = "[!#$%&'*+.^_`|~\\w-]+";
const HEADER = `(?!(?i:content-length|transfer-encoding):)${NAME}:${TEXT}\\r\\n`;
const FRAMING = "(?i:content-length:[ \\t]*\\d{1,15}|transfer-encoding:[ \\t]*chunked)[ \\t]*\\r\\n";
/** A final status line and headers that llhttp reads as other clients do: nearly all responses. */
const PLAIN = new RegExp(
  `^HTTP/1\\.[01] [2-9]\\d\\d(?: ${TEXT})?\\r\\n(?:${HEADER})*(?:${FRAMING}(?:${HEADER})*)?\\r\\n$`,
);
const STATUS_LINE = /^HTTP\/\d+(?:\.\d+)?[ \t]+([1-9]\d\d)(?=[ \t\r\n])/i;
const FIELD = new RegExp(`^(${NAME})[ \\t]*:(.*)$`, "s");
const EMPTY_LINE = /\n\r{0,2}\n/;
/** The maximum length of what EMPTY_LINE matches, less one. */
const MAX_TAIL = 3;
/** The length of a text that tells whether a response is HTTP. */
const BEGINNING = "HTTP/".length;
/** The type of the frame with which HTTP/2 begins: the fourth byte. */
const SETTINGS = "\x04";
/** Headers of the connection and of the body's length, which a rewritten head has itself. */
const OWN_FIELDS = /^(content-length|transfer-encoding|connection|keep-alive|upgrade)$/i;

type Field = [name: string, value: string];

/** The status and the headers of a response, by names in lower case. */
export interface ResponseStart {
  status: number;
  headers: Record<string, string[]>;
}

/**
 * Lets undici, whose parser is strict, read the responses that other HTTP clients read. It passes what a socket receives to undici,
 * which reads the usual responses as they are. If a status line can be read, but undici would refuse it or the headers, it rewrites
 * them; undici then closes the connection after the body. It removes informational responses: undici fails on 100.
 */
export class ResponseHead {
  /** The received part of the status line and headers, in latin1; undefined while none are expected. */
  #text: string | undefined;
  /** The end of `#text`, where an empty line may have begun. */
  #tail = "";
  /** The number of bytes received for `#text` and for informational responses before it. */
  #bytes = 0;

  /** Whether a part of a response has been received that undici does not have yet. */
  get hasBegun(): boolean {
    return this.#text !== undefined && this.#bytes > 0;
  }

  /** Expects the response to a request, which is sent next. */
  begin(): void {
    this.#text = "";
    this.#tail = "";
    this.#bytes = 0;
  }

  /** Reads what the socket receives before its reader does. */
  attach(socket: Socket): void {
    const read = socket.read.bind(socket);
    // undici receives data only by this method. A stream in between would cost every response more.
    socket.read = (size) => {
      for (;;) {
        const chunk: Buffer | null = read(size);
        if (chunk === null || this.#text === undefined) return chunk;
        const next = this.#next(chunk);
        if (next instanceof Error) {
          socket.destroy(next);
          return null;
        }
        if (next) return next;
      }
    };
  }

  /**
   * Ends the wait for the rest of the headers, because of an error or a timeout. Returns what has been received, or undefined without a
   * complete status line.
   */
  take(): ResponseStart | undefined {
    const head = wholeLines(this.#text ?? "");
    this.#text = undefined;
    const status = statusOf(head);
    if (status === undefined || (status < 200 && status !== 101)) return undefined;
    const named = Object.entries(Object.groupBy(fieldsOf(head), ([name]) => name.toLowerCase()));
    const headers = named.map(([name, fields = []]) => [name, fields.map(([, value]) => value)]);
    return { status, headers: Object.fromEntries(headers) };
  }

  /** Returns what undici gets, null if more must be received first, or an error that ends the connection. */
  #next(chunk: Buffer): Buffer | Error | null {
    this.#bytes += chunk.length;
    if (this.#text === "") {
      const end = chunk.indexOf("\r\n\r\n");
      if (end >= 0 && PLAIN.test(chunk.toString("latin1", 0, end + 4))) {
        this.#text = undefined;
        return chunk;
      }
    }
    const isTooLong = this.#bytes > MAX_HEAD_BYTES;
    for (let received = chunk.toString("latin1"); ; ) {
      const before = this.#text as string;
      // undici's parser, too, skips empty lines before the response.
      const text = before === "" ? received.replace(/^[\r\n]+/, "") : before + received;
      this.#text = text;
      if (before.length < BEGINNING && !"HTTP/".startsWith(text.slice(0, BEGINNING).toUpperCase()))
        return refused(
          text.startsWith("\0\0") && text[3] === SETTINGS ? "HTTP2_ONLY" : "HPE_INVALID_CONSTANT",
        );
      // Only the part that may contain the end is searched, because a receiver may send thousands of parts.
      const tail = this.#tail + received;
      this.#tail = tail.slice(-MAX_TAIL);
      const found = EMPTY_LINE.test(tail) ? EMPTY_LINE.exec(text) : null;
      if (!found && !isTooLong) return null;
      const end = found ? found.index + found[0].length : undefined;
      const head = text.slice(0, end);
      const status = statusOf(head);
      if (status === 101) return new errors.SocketError("the receiver switched protocols");
      if (status === undefined) return refused("HPE_INVALID_STATUS");
      if (!isTooLong && PLAIN.test(head)) return this.#pass(text);
      const body = end === undefined ? undefined : text.slice(end);
      if (status >= 200) return this.#pass(rewritten(status, head, body));
      if (isTooLong) return new errors.HeadersOverflowError();
      received = text.slice(end);
      this.#text = "";
      this.#tail = "";
    }
  }

  #pass(text: string): Buffer {
    this.#text = undefined;
    return Buffer.from(text, "latin1");
  }
}

/** Creates the error of a response that is not HTTP/1.1, with a code of faults.ts. undici's own error has no code. */
function refused(code: string): Error {
  return Object.assign(new Error("the response is not HTTP"), { code });
}

function statusOf(head: string): number | undefined {
  const status = STATUS_LINE.exec(head)?.[1];
  return status === undefined ? undefined : Number(status);
}

/** A text without its last line if that has no end. */
const wholeLines = (text: string) => text.slice(0, text.lastIndexOf("\n") + 1);

/** Reads headers, without the lines that are none. Folded lines are joined. */
function fieldsOf(head: string): Field[] {
  const [, ...lines] = head.replace(/\r?\n[ \t]+/g, " ").split(/\r?\n/);
  return lines.flatMap((line) => {
    const [, name, value = ""] = FIELD.exec(line) ?? [];
    // RFC 9110, 5.5: a space replaces an invalid character.
    return name === undefined ? [] : [[name, value.replace(/[^\t\x20-\x7e\x80-\xff]/g, " ")] as Field];
  });
}

/**
 * Writes a response as undici reads it.
 *
 * @param body the part of the body that was received with the head; undefined if the head is cut off, so that no body follows
 */
function rewritten(status: number, head: string, body: string | undefined): string {
  const fields = fieldsOf(body === undefined ? wholeLines(head) : head);
  let lines = `HTTP/1.1 ${status} \r\nconnection: close\r\n${framing(fields, body)}`;
  for (const [name, value] of fields) {
    const line = `${name}:${value}\r\n`;
    if (!OWN_FIELDS.test(name) && lines.length + line.length < MAX_HEAD_BYTES) lines += line;
  }
  return `${lines}\r\n${body ?? ""}`;
}

/** Returns the header that says where the body ends, or no header if it ends with the connection. */
function framing(fields: readonly Field[], body: string | undefined): string {
  const valuesOf = (wanted: string) =>
    fields.filter(([name]) => name.toLowerCase() === wanted).flatMap(([, value]) => value.split(","));
  const codings = valuesOf("transfer-encoding").map((each) => each.trim().toLowerCase());
  const lengths = new Set(valuesOf("content-length").map((each) => each.trim()));
  if (body !== undefined && codings.at(-1) === "chunked") return "transfer-encoding: chunked\r\n";
  if (body !== undefined && codings.length === 0 && lengths.size === 0) return "";
  // If the headers do not tell the length, the body is what was received with them.
  const [length = ""] = lengths;
  const isKnown = body !== undefined && lengths.size === 1 && /^\d{1,15}$/.test(length);
  return `content-length: ${isKnown ? length : (body ?? "").length}\r\n`;
}
