import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import fastifyStatic from "@fastify/static";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { NONCE_PLACEHOLDER, PAGE_PATHS } from "../contract/page-paths.ts";
import { sendFailure } from "./rest/failures.ts";

/** Where `npm run build` puts the page. */
const BUILT_PAGE = fileURLToPath(new URL("../../web/dist", import.meta.url));
const NONCE_BYTES = 16;
/** Names of files in it hold a hash of their content, so what a browser has of them never grows old. */
const ASSETS = "assets";
const ASSETS_CACHED_FOR = "365d";
const NOT_BUILT =
  "the settings page is not built; run `npm run build` where the service is installed, then start it again";

/** First parts of paths that are never a page's. */
const NO_PAGES = /^\/(?:api|docs|assets|healthz|readyz|metrics)(?:\/|$)|^\/[^/]*\./;

/** Nothing from elsewhere, and nothing inline but what carries the nonce: the component library's style tags. */
function contentSecurityPolicy(nonce: string): string {
  return [
    "default-src 'none'",
    `script-src 'self' 'nonce-${nonce}'`,
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

/** The folder of the built settings page; undefined when it was not built. */
export function findSettingsPage(): string | undefined {
  return existsSync(path.join(BUILT_PAGE, "index.html")) ? BUILT_PAGE : undefined;
}

/**
 * Serves the settings page: itself at every address of it, its files under /assets. It needs no key; the calls it
 * makes do.
 *
 * @param folder where it was built; without one, its addresses say what to do
 */
export function mountSettingsPage(app: FastifyInstance, folder: string | undefined): void {
  for (const address of Object.values(PAGE_PATHS)) {
    app.get(address, (request, reply) => {
      if (!folder) return sendFailure(reply, 503, NOT_BUILT);
      if (accepts(request, /text\/html|\*\/\*/)) return sendPage(reply, folder);
      return sendFailure(reply, 404, "the settings page is here, as text/html alone");
    });
  }
  if (!folder) return;
  app.register(fastifyStatic, {
    root: path.join(folder, ASSETS),
    prefix: `/${ASSETS}/`,
    // The build writes each file packed too, so that no answer is packed twice.
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
 * Answers browsers at addresses that nothing else answers: with the page, which says that there is none, and 404.
 *
 * @returns undefined where somebody else than a browser asks, or for what can be no page
 */
export async function answerLostBrowser(
  request: FastifyRequest,
  reply: FastifyReply,
  folder: string | undefined,
): Promise<FastifyReply | undefined> {
  const browses = request.method === "GET" && accepts(request, /text\/html/);
  return folder && browses && !NO_PAGES.test(request.url) ? sendPage(reply.code(404), folder) : undefined;
}

async function sendPage(reply: FastifyReply, folder: string): Promise<FastifyReply> {
  // Read each time: the page may be built anew while the service runs, and names its files anew then.
  const page = await readFile(path.join(folder, "index.html"), "utf8");
  const nonce = randomBytes(NONCE_BYTES).toString("base64");
  return reply
    .type("text/html; charset=utf-8")
    .header("Content-Security-Policy", contentSecurityPolicy(nonce))
    .header("Cache-Control", "no-cache")
    .header("Vary", "Accept")
    .header("Referrer-Policy", "no-referrer")
    .header("Cross-Origin-Opener-Policy", "same-origin")
    .send(page.replaceAll(NONCE_PLACEHOLDER, nonce));
}

function accepts({ headers: { accept = "*/*" } }: FastifyRequest, types: RegExp): boolean {
  return types.test(accept);
}
