import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import type { FastifyInstance, FastifyReply } from "fastify";
import type { OpenApiDocument } from "./document.ts";

/** Where the description of the REST API is. */
export const OPENAPI_PATH = "/openapi.json";
/** Where people read it. */
export const DOCS_PATH = "/docs";

/** Files of swagger-ui-dist that the page needs, with their types. */
const ASSETS: Record<string, string> = {
  "swagger-ui.css": "text/css; charset=utf-8",
  "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
  "favicon-32x32.png": "image/png",
};

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

/** Serves the description of the REST API and a page to browse it. Neither needs a key. */
export function mountDocs(app: FastifyInstance, document: OpenApiDocument): void {
  const text = JSON.stringify(document);
  app.get(OPENAPI_PATH, async (_request, reply) =>
    secured(reply, "application/json; charset=utf-8").send(text),
  );
  app.get(DOCS_PATH, async (_request, reply) => secured(reply, "text/html; charset=utf-8").send(PAGE));
  app.get(`${DOCS_PATH}/start.js`, async (_request, reply) =>
    secured(reply, "text/javascript; charset=utf-8").send(START),
  );
  const folder = path.dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));
  for (const [file, type] of Object.entries(ASSETS)) {
    // Read when the page is first looked at, which few processes ever see.
    let content: Buffer | undefined;
    app.get(`${DOCS_PATH}/${file}`, async (_request, reply) => {
      content ??= readFileSync(path.join(folder, file));
      return secured(reply, type).header("Cache-Control", "public, max-age=3600").send(content);
    });
  }
}

function secured(reply: FastifyReply, type: string): FastifyReply {
  return reply
    .type(type)
    .header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    .header("Vary", "accept-encoding")
    .header("Referrer-Policy", "no-referrer");
}
