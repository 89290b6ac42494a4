import path from "node:path";
import { promisify } from "node:util";
import * as zlib from "node:zlib";
import negotiate from "@fastify/accept-negotiator";
import fastifyStatic from "@fastify/static";
import type { FastifyInstance, FastifyReply } from "fastify";
import { LRUCache } from "lru-cache";
import { perCatalogue } from "../../contract/catalogue.ts";
import { servedDocument } from "../openapi/served-document.ts";
import { contentSecurityPolicy } from "./answer-headers.ts";
import { BROTLI } from "./compression.ts";
import type { BuiltPage } from "./settings-page.ts";
import { SWAGGER_UI_FILES, SWAGGER_UI_FOLDER } from "./swagger-ui.ts";

/** The path of the OpenAPI document. */
export const OPENAPI_PATH = "/openapi.json";
/** The path of its page. */
export const DOCS_PATH = "/docs";
const brotli = promisify<string, zlib.BrotliOptions, Buffer>(zlib.brotliCompress);
const gzip = promisify<string, Buffer>(zlib.gzip);

/** The document as it is sent, by encoding. */
interface Packed {
  br: Buffer;
  gzip: Buffer;
  none: string;
}

/** The number of path prefixes whose documents are kept: a process has one, or one for each route of its proxies. */
const MAX_PREFIXES = 8;

const page = (base: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Webhook service: REST API</title>
<link rel="stylesheet" href="${base}${DOCS_PATH}/swagger-ui.css">
<link rel="icon" type="image/png" href="${base}${DOCS_PATH}/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript. The description it shows is at <a href="${base}${OPENAPI_PATH}">${base}${OPENAPI_PATH}</a>.</noscript>
<script src="${base}${DOCS_PATH}/swagger-ui-bundle.js"></script>
<script src="${base}${DOCS_PATH}/start.js"></script>
</body>
</html>
`;

/**
 * Disables the online validator. A key entered on the page is forgotten when it closes. Operations are listed once: without the prefixes
 * of versions, which the description names.
 */
const start = (base: string) => `SwaggerUIBundle({
  url: ${JSON.stringify(base + OPENAPI_PATH)},
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  persistAuthorization: false,
  plugins: [() => ({ statePlugins: { spec: { wrapSelectors: {
    taggedOperations: (original) => (...given) => original(...given).filter((_, tag) => !/^v\\d$/.test(tag)),
  } } } })],
});
`;

/**
 * Serves the OpenAPI document and a page to browse it. They need no key, so requests must be cheap: the document is made once for
 * each catalogue of event types and compressed once for each path prefix, the page's files when the admin UI is built.
 *
 * @param deliveryTimeoutMs the timeout of a delivery, in milliseconds
 * @param built the built admin UI; without it, the files are served uncompressed from their package
 */
export function mountDocs(app: FastifyInstance, deliveryTimeoutMs: number, built: BuiltPage): void {
  const { basePath } = built;
  const byBase = perCatalogue((types) => {
    const document = servedDocument(types, deliveryTimeoutMs);
    return new LRUCache({ max: MAX_PREFIXES, memoMethod: (base: string) => packed(document, base) });
  });
  app.get(OPENAPI_PATH, async (request, reply) => {
    // "Any" means gzip, as for all other responses.
    const accepted = request.headers["accept-encoding"]?.replace("*", "gzip") ?? "";
    const encoding = negotiate(accepted, ["br", "gzip"]) ?? "none";
    secured(reply, "application/json; charset=utf-8").header("Vary", "Accept-Encoding");
    if (encoding !== "none") reply.header("Content-Encoding", encoding);
    const documents = await byBase().memo(basePath(request.raw));
    return reply.send(documents[encoding as keyof Packed]);
  });
  app.get(DOCS_PATH, async (request, reply) =>
    secured(reply, "text/html; charset=utf-8").send(page(basePath(request.raw))),
  );
  app.get(`${DOCS_PATH}/start.js`, async (request, reply) =>
    secured(reply, "text/javascript; charset=utf-8").send(start(basePath(request.raw))),
  );
  app.register(fastifyStatic, {
    root: built.page ? path.join(built.page, "docs") : SWAGGER_UI_FOLDER,
    prefix: `${DOCS_PATH}/`,
    allowedPath: (file) => SWAGGER_UI_FILES.includes(file.slice(1)),
    preCompressed: true,
    maxAge: "1h",
    index: false,
    decorateReply: false,
    setHeaders: (response, file) => {
      // RFC 9239 retired the type that the library sends.
      if (/\.js(\.\w+)?$/.test(file)) response.header("Content-Type", "text/javascript; charset=utf-8");
      for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.header(name, value);
    },
  });
}

async function packed(document: Promise<string>, base: string): Promise<Packed> {
  const serversAt = (url: string) => `"servers":${JSON.stringify([{ url }])}`;
  const text = (await document).replace(serversAt("/"), () => serversAt(base || "/"));
  return { br: await brotli(text, BROTLI), gzip: await gzip(text), none: text };
}

/** Prevents other origins' code on the page and framing by other pages. */
const SECURITY_HEADERS = {
  "Content-Security-Policy": contentSecurityPolicy(),
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
};

function secured(reply: FastifyReply, type: string): FastifyReply {
  return reply.type(type).headers(SECURITY_HEADERS);
}
