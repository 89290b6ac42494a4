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
import { DRESS, documentBar, SCHEME_SCRIPT } from "./page-dress.ts";
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
<link rel="preload" as="style" href="${base}${DOCS_PATH}/swagger-ui.css">
<link rel="stylesheet" href="${base}${DOCS_PATH}/style.css">
<script src="${base}${DOCS_PATH}/scheme.js"></script>
<link rel="icon" type="image/png" href="${base}${DOCS_PATH}/favicon-32x32.png">
</head>
<body>
${documentBar(base, DOCS_PATH)}
<main id="swagger-ui"></main>
<noscript>This page needs JavaScript. The description it shows is at <a href="${base}${OPENAPI_PATH}">${base}${OPENAPI_PATH}</a>.</noscript>
<script src="${base}${DOCS_PATH}/swagger-ui-bundle.js"></script>
<script src="${base}${DOCS_PATH}/start.js"></script>
</body>
</html>
`;

/** One accent in place of a colour for each method; red for what removes. Rules outside of layers win over the library's. */
const STYLE = `@import url("swagger-ui.css") layer(library);
${DRESS}
html.dark-mode, html.dark-mode body, .swagger-ui { background: var(--sheet); }
.swagger-ui, .swagger-ui *:not(code, code *, pre, pre *, svg *) { font-family: var(--sans); color: var(--text); }
.swagger-ui :is(code, pre, textarea, .opblock-summary-path, .opblock-summary-path *) { font-family: var(--mono); }
.swagger-ui svg { fill: currentColor; }
.swagger-ui .wrapper { max-width: 1200px; padding: 0 1rem; }
.swagger-ui .info { margin: 1.5rem 0 1rem; }
.swagger-ui .info .title { font-size: 26px; font-weight: 620; }
.swagger-ui .info .title small, .swagger-ui .info .title small.version-stamp { margin-inline-start: 6px; padding: 1px 6px; border: 1px solid var(--line); background: var(--frame); }
.swagger-ui .info .title small pre { font: 500 12px/1.5 var(--sans); color: var(--quiet); }
.swagger-ui a, .swagger-ui a * { color: var(--link); }
.swagger-ui :is(p, li, td, .markdown pre, .renderedMarkdown pre) code { padding: 1px 4px; border-radius: 4px; background: var(--frame); color: var(--text); font-size: .92em; font-weight: 400; }
.swagger-ui .scheme-container { margin: 0; padding: .75rem 0; background: none; box-shadow: none; border-block: 1px solid var(--line); }
.swagger-ui :is(select, input, textarea) { border: 1px solid var(--line); border-radius: 4px; box-shadow: none; background-color: var(--sheet); font-size: 13px; font-weight: 400; color: var(--text); }
.swagger-ui .opblock-tag { margin: 0; padding: 1rem 0 .5rem; border-bottom: 1px solid var(--line); font-size: 16px; font-weight: 620; }
.swagger-ui .opblock-tag small { color: var(--quiet); font-size: 13px; }
.swagger-ui .opblock { margin: 4px 0 0; border: 1px solid var(--line); border-radius: 6px; background: none; box-shadow: none; }
.swagger-ui .opblock .opblock-summary { padding: 3px 6px; border-color: var(--line); }
.swagger-ui .opblock .opblock-summary-method { min-width: 64px; padding: 4px 0; border-radius: 4px; background: var(--accent); font-size: 12px; font-weight: 500; text-shadow: none; color: #fff; }
.swagger-ui .opblock-delete .opblock-summary-method { background: var(--red); }
.swagger-ui .opblock .opblock-summary-path { font-size: 13px; font-weight: 500; }
.swagger-ui .opblock .opblock-summary-description { font-size: 13px; color: var(--quiet); }
.swagger-ui .opblock .opblock-section-header { min-height: 40px; background: var(--frame); box-shadow: none; border-block: 1px solid var(--line); }
.swagger-ui .opblock .tab-header .tab-item.active h4 span::after { background: var(--accent); }
.swagger-ui .opblock-body { overflow-x: auto; }
.swagger-ui .btn { border: 1px solid var(--line); border-radius: 4px; box-shadow: none; background: none; font-weight: 500; }
.swagger-ui .btn.execute { background: var(--accent); border-color: var(--accent); color: #fff; }
.swagger-ui section.models, .swagger-ui section.models.is-open h4, .swagger-ui section.models .model-container, .swagger-ui .model-box { border-color: var(--line); background: none; }
.swagger-ui .dialog-ux .modal-ux { border: 1px solid var(--line); background: var(--sheet); }
.swagger-ui :is(.parameter__type, .parameter__in, .prop-format, table thead tr th, table thead tr td) { color: var(--quiet); font-weight: 500; }
@media (max-width: 40rem) { .swagger-ui :is(.opblock .opblock-summary-description, .opblock-tag small) { display: none; } }
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
  app.get(`${DOCS_PATH}/style.css`, async (_request, reply) =>
    secured(reply, "text/css; charset=utf-8").send(STYLE),
  );
  app.get(`${DOCS_PATH}/scheme.js`, async (_request, reply) =>
    secured(reply, "text/javascript; charset=utf-8").send(SCHEME_SCRIPT),
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
