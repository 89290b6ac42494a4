import { Code, ConnectError } from "@connectrpc/connect";
import formbody from "@fastify/formbody";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { parseExactJson, repeatedName } from "../json/parse.ts";

/** The largest REST body, in bytes: parameters are small. */
export const MAX_BODY_BYTES = 65_536;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** What to do about a body of another type. */
export const UNSUPPORTED_TYPE =
  "the content type is not supported; send application/json or application/x-www-form-urlencoded";

/** Reads JSON, with every digit of its numbers, and forms. An empty body is none, whatever its type. */
export async function addBodyParsers(app: FastifyInstance): Promise<void> {
  app.removeAllContentTypeParsers();
  app.addHook("preParsing", async (request) => refuseEncodings(request));
  await app.register(formbody, { bodyLimit: MAX_BODY_BYTES });
  app.addContentTypeParser<Buffer>(
    // The framework matches the whole header, its parameters too.
    /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i,
    { parseAs: "buffer", bodyLimit: MAX_BODY_BYTES },
    (_request, body, done) => {
      try {
        done(null, body.length === 0 ? undefined : readJson(body));
      } catch (error) {
        done(error as Error);
      }
    },
  );
  app.addContentTypeParser<Buffer>(
    "*",
    { parseAs: "buffer", bodyLimit: MAX_BODY_BYTES },
    (_request, body, done) =>
      body.length === 0 ? done(null, undefined) : done(invalid(UNSUPPORTED_TYPE), undefined),
  );
}

/** A compressed body would be read as if it were text. */
function refuseEncodings({ headers, method }: FastifyRequest): void {
  const encoding = headers["content-encoding"];
  if (encoding === undefined || /^(identity)?$/i.test(encoding) || method === "GET" || method === "HEAD")
    return;
  throw invalid("Content-Encoding is not supported; send the body as it is, without that header");
}

function readJson(body: Buffer): unknown {
  const text = decode(body);
  const value = parse(text);
  const repeated = typeof value === "object" && value !== null ? repeatedName(text) : undefined;
  if (repeated !== undefined)
    throw invalid(`the body gives ${JSON.stringify(repeated)} more than once; give it once`);
  return value;
}

function decode(body: Buffer): string {
  try {
    return utf8.decode(body);
  } catch {
    throw invalid("the body is not UTF-8; send JSON as UTF-8");
  }
}

function parse(text: string): unknown {
  try {
    return parseExactJson(text);
  } catch (error) {
    if (error instanceof RangeError) throw invalid("the body is nested too deeply; send a flat JSON object");
    throw invalid(`the body is not valid JSON: ${(error as Error).message}`);
  }
}

function invalid(message: string): ConnectError {
  return new ConnectError(message, Code.InvalidArgument);
}
