import { Code, ConnectError } from "@connectrpc/connect";
import formbody from "@fastify/formbody";
import type { FastifyInstance } from "fastify";
import { parseExactJson, repeatedName } from "../json/parse.ts";

/** The largest REST body, in bytes: parameters are small. */
export const MAX_BODY_BYTES = 65_536;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads JSON, with every digit of its numbers, and forms. An empty body is none. */
export async function addBodyParsers(app: FastifyInstance): Promise<void> {
  app.removeAllContentTypeParsers();
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
    throw invalid(`the body is not valid JSON: ${(error as Error).message}`);
  }
}

function invalid(message: string): ConnectError {
  return new ConnectError(message, Code.InvalidArgument);
}
