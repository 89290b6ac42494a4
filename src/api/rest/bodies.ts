import type { Http2ServerRequest } from "node:http2";
import { Code, ConnectError } from "@connectrpc/connect";
import { parse as parseForm } from "fast-querystring";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { withoutExcerpt } from "../../calls/errors/index.ts";
import { parseExactJson, repeatedName } from "../../contract/json/exact-json.ts";
import { contentCoding } from "../../lib/egress/index.ts";
import { decompress, REQUEST_ENCODINGS } from "../limits/decompress.ts";

/** The maximum size of a REST body, in bytes. */
export const MAX_BODY_BYTES = 65_536;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The names of JSON, and those that some clients still send. The framework matches the complete header, including parameters. */
const JSON_TYPE = /^(?:application\/(?:[\w.-]+\+|x-)?json|text\/(?:x-)?json)\s*(?:;|$)/i;
const FORM = /^application\/x-www-form-urlencoded\b/i;
/** PHP's curl sends parameters so. */
const MULTIPART = /^multipart\/form-data\b/i;
/** The maximum length of a content type repeated in an error, in characters. */
const MAX_SHOWN_TYPE = 50;

/**
 * The error for a body that is neither JSON nor a form.
 *
 * @param type the request's Content-Type; undefined if missing
 */
export function unsupportedType(type: string | undefined): string {
  const given = type && JSON.stringify(type.slice(0, MAX_SHOWN_TYPE));
  const problem = given ? `the Content-Type ${given} is not supported` : "the body has no Content-Type";
  return `${problem}; send JSON with Content-Type: application/json, or a form with Content-Type: application/x-www-form-urlencoded`;
}

/** Whether the request declares its body as a form. */
export function isForm(type: string | undefined): boolean {
  return FORM.test(type ?? "") || MULTIPART.test(type ?? "");
}

/** Adds parsers for JSON, which keep all digits of numbers, and for forms. An empty body counts as none. */
export function addBodyParsers(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addHook("preParsing", async (request) => refuseEncodings(request));
  const options = { parseAs: "buffer", bodyLimit: MAX_BODY_BYTES } as const;
  const parse = (types: string | RegExp, read: (body: Buffer, type: string) => unknown) =>
    app.addContentTypeParser<Buffer>(types, options, async ({ headers }: FastifyRequest, body: Buffer) => {
      if (body.length === 0) return undefined;
      const coding = contentCoding(headers["content-encoding"]);
      const plain = coding === "" ? body : await decompress(coding, body, MAX_BODY_BYTES);
      return read(plain as Buffer, headers["content-type"] ?? "");
    });
  parse(FORM, (body, type) => parseForm(decode(body, type, "the form")));
  parse(MULTIPART, readMultipart);
  parse(JSON_TYPE, readJson);
  parse("*", (body, type) => {
    // Without a type, the body tells it (RFC 9110, 8.3).
    if (type === "" && /^\s*\{/.test(body.toString("latin1", 0, 100))) return readJson(body, type);
    throw invalid(unsupportedType(type || undefined));
  });
}

/**
 * Limits the time in which a body arrives over HTTP/2. Node does so over HTTP/1.1 only. A body without a content type is
 * not read, and its stream ends with the response.
 */
export function limitHttp2Bodies(app: FastifyInstance, timeoutMs: number): void {
  app.addHook("preParsing", async ({ raw }, _reply, payload) => {
    if (raw.httpVersionMajor === 1) return;
    const { stream } = raw as unknown as Partial<Http2ServerRequest>;
    // Undefined once the client has left.
    if (!stream || stream.endAfterHeaders) return;
    // The framework stops listening before the end of a body that is too long.
    payload.on("error", () => {});
    const timer = setTimeout(() => {
      const message = `the request did not arrive within ${timeoutMs / 1_000} s; send it again`;
      // Not destroyed: the stream carries the response.
      payload.emit("error", new ConnectError(message, Code.Canceled));
    }, timeoutMs);
    const clear = () => clearTimeout(timer);
    raw.once("end", clear).once("close", clear);
  });
}

/** Rejects bodies in unknown encodings, which would otherwise be parsed as text. */
function refuseEncodings({ headers, method }: FastifyRequest): void {
  const coding = contentCoding(headers["content-encoding"]);
  if (coding === "" || REQUEST_ENCODINGS.includes(coding) || method === "GET" || method === "HEAD") return;
  throw invalid(
    `Content-Encoding is not supported; send the body as it is, without that header, or as ${REQUEST_ENCODINGS.join(", ")}`,
  );
}

function readJson(body: Buffer, type: string): unknown {
  const text = decode(body, type, "JSON");
  const value = parse(text);
  const repeated = typeof value === "object" && value !== null ? repeatedName(text) : undefined;
  if (repeated !== undefined)
    throw invalid(`the body contains ${JSON.stringify(repeated)} more than once; send it once`);
  return value;
}

/** The parameters of a form in parts, as of other forms. */
async function readMultipart(body: Buffer, type: string): Promise<Record<string, unknown>> {
  try {
    const form = await new Response(new Uint8Array(body), { headers: { "content-type": type } }).formData();
    return Object.fromEntries([...new Set(form.keys())].map((name) => [name, form.getAll(name)]));
  } catch {
    throw invalid("the body is not valid multipart/form-data; send JSON with Content-Type: application/json");
  }
}

/** @param what what the error asks for */
function decode(body: Buffer, type: string, what: string): string {
  const [, charset = "utf-8"] = /;\s*charset="?([^\s;"]+)/i.exec(type) ?? [];
  try {
    return decoderOf(charset).decode(body);
  } catch {
    throw invalid(`the body is not UTF-8; send ${what} as UTF-8`);
  }
}

/** The decoder of a character encoding; UTF-8 for an unknown one. */
function decoderOf(charset: string): TextDecoder {
  try {
    return new TextDecoder(charset, { fatal: true });
  } catch {
    return utf8;
  }
}

function parse(text: string): unknown {
  try {
    return parseExactJson(text);
  } catch (error) {
    if (error instanceof RangeError) throw invalid("the body is nested too deeply; send a flat JSON object");
    throw invalid(`the body is not valid JSON: ${withoutExcerpt((error as Error).message)}`);
  }
}

function invalid(message: string): ConnectError {
  return new ConnectError(message, Code.InvalidArgument);
}
