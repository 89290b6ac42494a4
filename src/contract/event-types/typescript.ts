import type { DescEnum, DescMessage } from "@bufbuild/protobuf";
import type { CatalogueEntry } from "../catalogue.ts";
import { commentOf } from "../comments.ts";
import { propertyName } from "../json/names.ts";
import { memberList, memberNames } from "./schema.ts";
import { type NameOf, typesOf } from "./type-names.ts";
import { type Notation, propertyType } from "./type-words.ts";

/** Names that the generated file uses for itself, and global types that it refers to. */
const RESERVED = [
  "WebhookEvent",
  "WebhookPayloads",
  "Webhook",
  "Record",
  "Readonly",
  "ReadonlySet",
  "Error",
  "JSON",
  "Map",
  "BigInt",
  "Number",
  "String",
  "Event",
];

/**
 * The TypeScript of receivers: a type for each event type, their union, and a function that verifies and parses a delivery.
 *
 * @returns one file, which needs the npm package `standardwebhooks`
 */
export function typescriptOf(entries: readonly CatalogueEntry[]): string {
  const { types, nameOf } = typesOf(entries, RESERVED);
  const declared = types.map(({ desc, name }) =>
    desc.kind === "enum" ? enumType(desc, name) : messageType(desc, name, nameOf),
  );
  const payloads = entries.map(({ name, payload }) => `  ${name}: ${nameOf(payload)};`).join("\n");
  return `${HEAD}\n${declared.join("\n")}
/** The payload of each event type, by the header X-Service-Webhook-Process. */
export interface WebhookPayloads {
${payloads}
}
${tail(entries)}`;
}

const HEAD = `// The event types of this service, which has generated this file. Get it again when event types are added or changed.
// Needs: npm install standardwebhooks
import { Webhook } from "standardwebhooks";
`;

const tail = (entries: readonly CatalogueEntry[]) => `
/** An event: narrow it by \`type\`. */
export type WebhookEvent = {
  [Type in keyof WebhookPayloads]: {
    type: Type;
    /**
     * X-Service-Webhook-Id, the same for each attempt. Deliveries arrive at least once: store the id in the transaction that handles the
     * event, and skip a delivery whose id is stored.
     */
    id: string;
    /** The X-Service-UserId, of webhooks of installed apps. */
    userId: string | undefined;
    /** Whether it is a test event, whose payload can be any object. */
    isTest: boolean;
    payload: WebhookPayloads[Type];
  };
}[keyof WebhookPayloads];

const TYPES: ReadonlySet<string> = new Set([${entries.map(({ name }) => `"${name}"`).join(", ")}]);

/**
 * Verifies and parses a delivery.
 *
 * @param secret the webhook's signing secret, whsec_…
 * @param headers with names in any case
 * @param body the raw body: parsed and serialized again, it can have other bytes
 * @throws Error if the signature is invalid or older than five minutes (answer 400), or if this file lacks the event type
 */
export function receive(
  secret: string,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  body: string,
): WebhookEvent {
  const byName = Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value ?? "")]),
  );
  new Webhook(secret).verify(body, byName);
  const type = byName["x-service-webhook-process"] ?? "";
  if (!TYPES.has(type)) throw new Error(\`this file does not have the event type \${type}: get types.ts again\`);
  const event = {
    type,
    id: byName["x-service-webhook-id"] ?? "",
    userId: byName["x-service-userid"],
    isTest: byName["x-service-webhook-test"] === "true",
    payload: JSON.parse(body, exact),
  };
  return event as WebhookEvent;
}

/** Reads integers beyond 2^53 as bigint, where the JavaScript engine has the source text of values (Node.js 22, browsers of 2025). */
function exact(_key: string, value: unknown, context?: { source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? "";
  return /^-?\\d+$/.test(source) ? BigInt(source) : value;
}
`;

function messageType(desc: DescMessage, name: string, nameOf: NameOf): string {
  const fields = desc.fields.map(
    (field) =>
      `${comment(commentOf(field), "  ")}  ${propertyName(field)}: ${propertyType(field, NOTATION, nameOf)};\n`,
  );
  return `${comment(commentOf(desc))}export interface ${name} {\n${fields.join("")}}\n`;
}

/** A type that later members of the enum fit, too. */
function enumType(desc: DescEnum, name: string): string {
  const members = memberNames(desc).map((member) => `\n  | "${member}"`);
  const text = [commentOf(desc), memberList(desc), "Later versions may add members."]
    .filter(Boolean)
    .join("\n\n");
  return `${comment(text)}export type ${name} =${members.join("")}\n  | (string & {});\n`;
}

const NOTATION: Notation = {
  ...{ string: "string", bytes: "string", boolean: "boolean", number: "number" },
  ...{ integer: "number", integer64: "number | bigint", time: "string", object: "Record<string, unknown>" },
  list: (item) => `${item.includes(" ") ? `(${item})` : item}[]`,
  map: (value) => `Record<string, ${value}>`,
  orNull: (value) => `${value} | null`,
};

/** A documentation comment, which no text of a proto file can end. */
function comment(text: string | undefined, indent = ""): string {
  if (!text) return "";
  const lines = text.replaceAll("*/", "* /").split("\n");
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}`.trimEnd()).join("\n")}\n${indent} */\n`;
}
