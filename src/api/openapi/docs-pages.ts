import path from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import negotiate from "@fastify/accept-negotiator";
import fastifyStatic from "@fastify/static";
import type { FastifyInstance, FastifyReply } from "fastify";
import type { OpenApiDocument } from "./document.ts";
import { SWAGGER_UI_FILES, SWAGGER_UI_FOLDER } from "./swagger-ui.ts";

/** Where the description of the REST API is. */
export const OPENAPI_PATH = "/openapi.json";
/** Where people read it. */
export const DOCS_PATH = "/docs";

/** Content-Encodings of the description, in the order of preference. */
const ENCODINGS = ["br", "gzip"] as const;

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Webhook service: REST API</title>
<link rel="stylesheet" href="${DOCS_PATH}/swagger-ui.css">
<link rel="icon" type="image/png" href="${DOCS_PATH}/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript. The description it shows is at <a href="${OPENAPI_PATH}">${OPENAPI_PATH}</a>.</noscript>
<script src="${DOCS_PATH}/swagger-ui-bundle.js"></script>
<script src="${DOCS_PATH}/start.js"></script>
</body>
</html>
`;

/** The validator would be asked over the internet; a key typed into the page is forgotten when it closes. */
const START = `SwaggerUIBundle({
  url: ${JSON.stringify(OPENAPI_PATH)},
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  persistAuthorization: false,
});
`;

/** Nothing from elsewhere, nothing inline; the page's images are in its style sheet. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/**
 * Serves the description of the REST API and a page to browse it. Neither needs a key, so neither is compressed when it is
 * asked for: the description is compressed once here, the page's files when the settings page is built.
 *
 * @param page folder of the built settings page; without one, the files come uncompressed from their package
 */
export function mountDocs(app: FastifyInstance, document: OpenApiDocument, page: string | undefined): void {
  const text = JSON.stringify(document);
  const packed = { br: brotliCompressSync(text), gzip: gzipSync(text) };
  app.get(OPENAPI_PATH, async (request, reply) => {
    // "Any" means gzip, as for all other answers.
    const accepted = request.headers["accept-encoding"]?.replace("*", "gzip") ?? "";
    const encoding = negotiate(accepted, [...ENCODINGS]);
    secured(reply, "application/json; charset=utf-8").header("Vary", "Accept-Encoding");
    return encoding ? reply.header("Content-Encoding", encoding).send(packed[encoding]) : reply.send(text);
  });
  app.get(DOCS_PATH, async (_request, reply) => secured(reply, "text/html; charset=utf-8").send(PAGE));
  app.get(`${DOCS_PATH}/start.js`, async (_request, reply) =>
    secured(reply, "text/javascript; charset=utf-8").send(START),
  );
  app.register(fastifyStatic, {
    root: page ? path.join(page, "docs") : SWAGGER_UI_FOLDER,
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

/** Nothing from elsewhere runs on the page, and no other page frames it. */
const SECURITY_HEADERS = {
  "Content-Security-Policy": CONTENT_SECURITY_POLICY,
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
};

function secured(reply: FastifyReply, type: string): FastifyReply {
  return reply.type(type).headers(SECURITY_HEADERS);
}
