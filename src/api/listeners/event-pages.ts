import { readFile } from "node:fs/promises";
import type { FastifyInstance, FastifyReply } from "fastify";
import { LRUCache } from "lru-cache";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import {
  type CatalogueEntry,
  eventTypeNamed,
  eventTypes,
  isNotice,
  perCatalogue,
} from "../../contract/catalogue.ts";
import { commentOf, firstSentence } from "../../contract/comments.ts";
import { pythonOf } from "../../contract/event-types/python.ts";
import { samplePayload } from "../../contract/event-types/sample.ts";
import { payloadSchema } from "../../contract/event-types/schema.ts";
import { type NameOf, typesOf } from "../../contract/event-types/type-names.ts";
import { choiceOf, inWords, propertyType } from "../../contract/event-types/type-words.ts";
import { typescriptOf } from "../../contract/event-types/typescript.ts";
import { parseExactJson, stringifyExactJson } from "../../contract/json/exact-json.ts";
import { enumMemberName, propertyName } from "../../contract/json/names.ts";
import { PAGE_PATHS } from "../../contract/page-paths.ts";
import { buildAhead, type PastChange } from "../../event-types/index.ts";
import { type Gate, sessionIn } from "../../keys/gate/index.ts";
import type { AddressReader } from "../context/client-address.ts";
import type { SilentDatabase } from "../context/silent-database.ts";
import { callerOf } from "../rest/caller.ts";
import { contentSecurityPolicy } from "./answer-headers.ts";
import type { BasePathReader } from "./base-path.ts";
import { DRESS, documentBar, SCHEME_SCRIPT } from "./page-dress.ts";

/** The path of the pages of event types. */
export const EVENTS_PATH = "/events";

/** The file that the operator's event types import. */
const OPTIONS_PATH = `${EVENTS_PATH}/options.proto`;
const OPTIONS = new URL("../../../proto/webhook/v1/options.proto", import.meta.url);

/** The maximum number of characters of cached pages. Thousands of event types under many path prefixes have more than memory should hold. */
const MAX_KEPT = 8_388_608;

/** Dependencies of the pages of event types. */
export interface EventPagesParts {
  basePath: BasePathReader;
  /** Whether people without a key see them. */
  publicCatalogue: boolean;
  gate: Gate;
  database: SilentDatabase;
  readAddress: AddressReader;
  /** The changes of an event type, newest first. */
  historyOf: (process: number) => Promise<readonly PastChange[]>;
}

/**
 * Serves the event types: a list, a page for each, and the types of receivers in TypeScript and Python. Unless they are public, they need a key
 * or a session that may read. What is served is written once for each catalogue.
 */
export async function mountEventPages(app: FastifyInstance, parts: EventPagesParts): Promise<void> {
  const { basePath, publicCatalogue, gate, database, readAddress, historyOf } = parts;
  if (!publicCatalogue) {
    app.addHook("onRequest", async (request, reply) => {
      if (request.routeOptions.url === OPTIONS_PATH) return undefined;
      const { cookie = "", accept = "" } = request.headers;
      // A link sends no header of the page. Nothing here changes anything, and other origins cannot read the response.
      const caller = { ...callerOf(request, reply, readAddress), session: sessionIn(cookie) };
      if (!caller.secret && !caller.session && accept.includes("text/html"))
        return reply.redirect(`${basePath(request.raw)}${PAGE_PATHS.signIn}`);
      await database.refuseWhileSilent(() => gate.admit(WebhookService.method.listProcesses, caller));
      return undefined;
    });
  }
  const afterBuilding = (write: (types: readonly CatalogueEntry[]) => string) =>
    perCatalogue(async (types) => {
      await buildAhead(types);
      return write(types);
    });
  const typescript = afterBuilding(typescriptOf);
  const python = afterBuilding(pythonOf);
  const pages = perCatalogue(
    () => new LRUCache<string, string>({ maxSize: MAX_KEPT, sizeCalculation: (text) => text.length }),
  );
  async function kept(key: string, write: () => Promise<string>): Promise<string> {
    const texts = pages();
    const text = texts.get(key) ?? (await write());
    texts.set(key, text);
    return text;
  }
  const send = (reply: FastifyReply, type: string, text: string) =>
    reply.type(`${type}; charset=utf-8`).headers(HEADERS).send(text);
  app.get(EVENTS_PATH, async (request, reply) => {
    const base = basePath(request.raw);
    const text = await kept(`list ${base}`, async () => {
      const types = eventTypes();
      await buildAhead(types);
      return list(types, base);
    });
    return send(reply, "text/html", page("Event types", base, text));
  });
  app.get(`${EVENTS_PATH}/types.ts`, async (_request, reply) =>
    send(reply, "text/plain", await typescript()),
  );
  app.get(`${EVENTS_PATH}/types.py`, async (_request, reply) => send(reply, "text/plain", await python()));
  app.get(OPTIONS_PATH, async (_request, reply) =>
    send(reply, "text/plain", await readFile(OPTIONS, "utf8")),
  );
  app.get(`${EVENTS_PATH}/scheme.js`, (_request, reply) => send(reply, "text/javascript", SCHEME_SCRIPT));
  app.get(`${EVENTS_PATH}/style.css`, (_request, reply) => send(reply, "text/css", STYLE));
  app.get<{ Params: { name: string } }>(`${EVENTS_PATH}/types/:name`, async (request, reply) => {
    const entry = eventTypeNamed(request.params.name);
    if (!entry) return reply.callNotFound();
    const { name, number } = entry;
    const base = basePath(request.raw);
    // Each change of an event type makes another catalogue, so that its history is read once.
    const text = await kept(
      `type ${name} ${base}`,
      async () => about(entry, base) + history(await historyOf(number)),
    );
    return send(reply, "text/html", page(name, base, text));
  });
}

const HEADERS = {
  "Content-Security-Policy": contentSecurityPolicy(),
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
};

const page = (title: string, base: string, body: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)} · Webhook service</title>
<link rel="stylesheet" href="${base}${EVENTS_PATH}/style.css">
<script src="${base}${EVENTS_PATH}/scheme.js"></script>
</head>
<body>
${documentBar(base, EVENTS_PATH)}
<main>
${body}
</main>
</body>
</html>
`;

const STYLE = `${DRESS}
main { max-width: 60rem; margin: 0 auto; padding: 1.25rem 1rem 4rem; overflow-wrap: anywhere; }
main a { color: var(--link); text-decoration: none; }
main a:hover, main p a { text-decoration: underline; }
h1 { font-size: 20px; line-height: 1.3; font-weight: 620; margin: .5rem 0; }
h2 { font-size: 16px; line-height: 1.4; font-weight: 620; margin: 2rem 0 0; padding-bottom: .5rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: start; vertical-align: top; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); }
th { font-size: 12px; font-weight: 500; color: var(--quiet); }
code, pre { font: .92em/1.5 var(--mono); }
pre { overflow-x: auto; padding: .75rem; background: var(--frame); border: 1px solid var(--line); border-radius: 6px; overflow-wrap: normal; }
.quiet { color: var(--quiet); }
.number { white-space: nowrap; }
@media (max-width: 40rem) { td, th { display: block; border: 0; padding: 0; } tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); } thead { display: none; } }
`;

function list(entries: readonly CatalogueEntry[], base: string): string {
  const rows = entries.map((entry) => {
    const { number, name, payload } = entry;
    const link = `<a href="${base}${EVENTS_PATH}/types/${name}">${name}</a>${otherName(entry)}`;
    const text = firstSentence(commentOf(payload) ?? "");
    return `<tr><td>${link}</td><td class="number">${number}</td><td>${escaped(text)}</td></tr>`;
  });
  return `<h1>Event types</h1>
<p>Each is delivered by an HTTPS POST with the payload as JSON. The header <code>X-Service-Webhook-Process</code> has its name.</p>
<p>For receivers, one file each with all types, and a function that verifies and parses a delivery:
<a href="${base}${EVENTS_PATH}/types.ts" download>types.ts</a> (TypeScript),
<a href="${base}${EVENTS_PATH}/types.py" download>types.py</a> (Python, pydantic).</p>
<table><thead><tr><th>Event type</th><th class="number">Number</th><th>Description</th></tr></thead><tbody>
${rows.join("\n")}
</tbody></table>`;
}

const otherName = ({ alias, number, deprecated }: CatalogueEntry) =>
  [
    alias === undefined ? "" : ` <code>${escaped(alias)}</code>`,
    isNotice(number) ? ' <span class="quiet">of the service itself</span>' : "",
    deprecated ? ' <span class="quiet">deprecated</span>' : "",
  ].join("");

function about(entry: CatalogueEntry, base: string): string {
  const { name, number, payload } = entry;
  const { types, nameOf } = typesOf([entry], []);
  const link: NameOf = (desc) => `<a href="#${nameOf(desc)}">${nameOf(desc)}</a>`;
  const code = (text: string) => `<code>${escaped(text)}</code>`;
  const parts = types.toReversed().map(({ desc, name: each }) => {
    const rows =
      desc.kind === "enum"
        ? desc.values.map((value) => [code(enumMemberName(desc, value.number) ?? ""), "", commentOf(value)])
        : desc.fields.map((field) => {
            const text = [commentOf(field), choiceOf(field)?.replaceAll("`", "")].filter(Boolean).join(" ");
            return [code(propertyName(field)), propertyType(field, inWords(code), link), text];
          });
    const body = rows.map(
      ([what, type, text = ""]) => `<tr><td>${what}</td><td>${type}</td><td>${escaped(text)}</td></tr>`,
    );
    const title = desc === payload ? "Properties" : each;
    const text = desc === payload ? "" : paragraphs(commentOf(desc));
    return `<h2 id="${each}">${title}</h2>\n${text}<table><tbody>\n${body.join("\n")}\n</tbody></table>`;
  });
  const sample = stringifyExactJson(parseExactJson(samplePayload(payload)), 2);
  return `<p><a href="${base}${EVENTS_PATH}">Event types</a></p>
<h1>${name}</h1>
<p class="quiet">Number ${number}${otherName(entry)}</p>
${paragraphs(commentOf(payload))}
<p class="quiet">All properties are always present, in this order. Times are UTC. Ignore properties and names that you do not know.</p>
${parts.join("\n")}
<h2>Sample</h2>
<pre>${escaped(sample)}</pre>
<details><summary>JSON Schema</summary>
<pre>${escaped(JSON.stringify(payloadSchema(payload), null, 2))}</pre></details>`;
}

function history(past: readonly PastChange[]): string {
  if (past.length === 0) return "";
  const rows = past.map(({ registered, kind, changes }) => {
    const what = [kind.replace("_", " "), changes.join("; ")].filter(Boolean).join(": ");
    return `<tr><td>${registered.toISOString().slice(0, 10)}</td><td>${escaped(what)}</td></tr>`;
  });
  return `\n<h2>History</h2>\n<table><tbody>\n${rows.join("\n")}\n</tbody></table>`;
}

const paragraphs = (text = "") =>
  text
    .split(/\n{2,}/)
    .filter((paragraph) => paragraph !== "")
    .map((paragraph) => `<p>${escaped(paragraph)}</p>\n`)
    .join("");

const ESCAPES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

const escaped = (text: string) => text.replaceAll(/[&<>"']/g, (character) => ESCAPES[character] as string);
