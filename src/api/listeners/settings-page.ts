import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import fastifyStatic from "@fastify/static";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { NONCE_PLACEHOLDER, PAGE_PATHS } from "../../contract/page-paths.ts";
import { sendFailure } from "../rest/failures.ts";
import { contentSecurityPolicy } from "./answer-headers.ts";
import { type BasePathReader, withBasePath } from "./base-path.ts";

/** The folder of the page built by `npm run build`. */
const BUILT_PAGE = fileURLToPath(new URL("../../../web/dist", import.meta.url));
/** The length of a nonce, in bytes. */
const NONCE_BYTES = 16;
/** The folder of assets. File names contain a hash of the content, so browsers may cache them indefinitely. */
const ASSETS = "assets";
const ASSETS_CACHED_FOR = "365d";
const NOT_BUILT =
  "the settings page is not built; run `npm run build` where the service is installed, then start it again";

/** URLs whose first path segment never belongs to the page. */
const NO_PAGES = /^\/(?:api|docs|assets|healthz|readyz|metrics)(?:[/?]|$)|^\/[^/?]*\./;

/** The folder of the built page; undefined if it is not built. */
export function findSettingsPage(): string | undefined {
  return existsSync(path.join(BUILT_PAGE, "index.html")) ? BUILT_PAGE : undefined;
}

/** The built page. */
export interface BuiltPage {
  /** Its folder; without one, its addresses return instructions. */
  page: string | undefined;
  basePath: BasePathReader;
}

/** Serves the admin UI at all its addresses, and its files under /assets. The page needs no key; its API calls do. */
export function mountSettingsPage(app: FastifyInstance, { page: folder, basePath }: BuiltPage): void {
  for (const address of Object.values(PAGE_PATHS)) {
    app.get(address, (request, reply) => {
      if (!folder) return sendFailure(reply, 503, NOT_BUILT);
      if (accepts(request, /text\/html|\*\/\*/)) return sendPage(reply, folder, basePath(request.raw));
      return sendFailure(reply, 404, "the settings page is here, as text/html alone");
    });
  }
  if (!folder) return;
  app.register(fastifyStatic, {
    root: path.join(folder, ASSETS),
    prefix: `/${ASSETS}/`,
    // The build compresses each file, so that no response needs compression.
    preCompressed: true,
    immutable: true,
    maxAge: ASSETS_CACHED_FOR,
    index: false,
    decorateReply: false,
    setHeaders: (reply) => {
      reply.header("Vary", "accept-encoding");
      reply.header("Referrer-Policy", "no-referrer");
    },
  });
}

/**
 * Responds to browsers at unknown paths with the page, which shows "not found", and status 404.
 *
 * @returns undefined for other clients and for paths that cannot be a page
 */
export async function answerLostBrowser(
  request: FastifyRequest,
  reply: FastifyReply,
  { page: folder, basePath }: BuiltPage,
): Promise<FastifyReply | undefined> {
  const browses = request.method === "GET" && accepts(request, /text\/html/);
  if (!folder || !browses || NO_PAGES.test(request.url)) return undefined;
  return sendPage(reply.code(404), folder, basePath(request.raw));
}

async function sendPage(reply: FastifyReply, folder: string, basePath: string): Promise<FastifyReply> {
  // Read for each request: the page may be rebuilt with new file names while the service runs.
  const page = await readFile(path.join(folder, "index.html"), "utf8");
  const nonce = randomBytes(NONCE_BYTES).toString("base64");
  return reply
    .type("text/html; charset=utf-8")
    .header("Content-Security-Policy", contentSecurityPolicy(nonce))
    .header("Cache-Control", "no-cache")
    .header("Vary", "Accept")
    .header("Referrer-Policy", "no-referrer")
    .header("Cross-Origin-Opener-Policy", "same-origin")
    .send(withBasePath(page, basePath).replaceAll(NONCE_PLACEHOLDER, nonce));
}

function accepts({ headers: { accept = "*/*" } }: FastifyRequest, types: RegExp): boolean {
  return types.test(accept);
}
