import type { DescMessage } from "@bufbuild/protobuf";
import { getOption } from "@bufbuild/protobuf";
import { required_permission } from "../../gen/webhook/v1/options_pb.ts";
import manifest from "../../package.json" with { type: "json" };
import { answerSchemas } from "../../src/api/openapi/answer-schemas.ts";
import { describeDelivery } from "../../src/api/openapi/delivery-requests.ts";
import type { RestBinding } from "../../src/api/rest/bindings.ts";
import { readConfig } from "../../src/config/index.ts";
import { eventTypes } from "../../src/contract/catalogue.ts";
import { commentOf, firstSentence } from "../../src/contract/comments.ts";
import type { JsonSchema } from "../../src/contract/event-types/schema-scalars.ts";
import { permissionName } from "../../src/contract/permissions.ts";
import { withinTimeout } from "../../src/contract/time-in-words.ts";
import { KEY_HEADER } from "../../src/keys/gate/key-refusals.ts";
import { describeAnswers } from "./answers.ts";
import { FAILURE, failureResponses, failureSchema } from "./failures.ts";
import { rateLimitComponents } from "./headers.ts";
import { aboutParameters, describeParameters } from "./parameters.ts";

/** An operation in the document. */
export interface OpenApiOperation extends JsonSchema {
  operationId: string;
  "x-required-permission": string;
  responses: Record<string, JsonSchema>;
}

/** An OpenAPI 3.1 document. */
export interface OpenApiDocument {
  openapi: "3.1.1";
  paths: Record<string, Record<string, OpenApiOperation>>;
  webhooks: Record<string, JsonSchema>;
  components: { schemas: Record<string, JsonSchema>; [kind: string]: unknown };
  [member: string]: unknown;
}

const SECURITY_SCHEME = "ServiceKey";

/** Describes the REST API from its bindings, messages, and the comments of the proto files. */
export function openApiDocument(bindings: readonly RestBinding[]): OpenApiDocument {
  const answers = answerSchemas("rest", (desc) => flatName(desc));
  const payloads = answerSchemas("payload", (desc) => `${flatName(desc)}Payload`);
  const paths: OpenApiDocument["paths"] = {};
  for (const binding of bindings) {
    const { path, httpMethod, method } = binding;
    const permission = permissionName(getOption(method, required_permission));
    const comment = commentOf(method) ?? method.name;
    const description = [comment, `Needs the permission \`${permission}\`.`, aboutParameters(binding)];
    paths[path] ??= {};
    paths[path][httpMethod.toLowerCase()] = {
      operationId: `${method.localName}${versionOf(path).toUpperCase()}`,
      tags: [versionOf(path) || "webhooks"],
      summary: firstSentence(comment),
      description: description.filter((paragraph) => paragraph !== undefined).join("\n\n"),
      "x-required-permission": permission,
      security: [{ [SECURITY_SCHEME]: [] }],
      ...describeParameters(binding),
      responses: describeAnswers(binding, answers),
    };
  }
  const within = withinTimeout(readConfig({}).delivery.timeoutMs);
  const webhooks = Object.fromEntries(
    eventTypes().map((entry) => [entry.name, describeDelivery(entry, payloads, within)]),
  );
  return {
    openapi: "3.1.1",
    info: {
      title: "Webhook registration and delivery",
      version: manifest.version,
      license: { name: manifest.license, identifier: manifest.license },
      description:
        "Register HTTPS URLs for event types. Each event is delivered to every URL registered for its type: " +
        "signed, at least once, with up to 3 retries.\n\n" +
        `Every request needs an API key in the header \`${KEY_HEADER}\`. Every answer has the same envelope: ` +
        "`Success`, `Data` and `Warnings`. All times are UTC in whole seconds, without a zone. " +
        "`Id` has up to 64 bits: read it with a JSON parser that keeps every digit.\n\n" +
        `The same operations have the prefixes ${versions(bindings)
          .map((name) => `\`/api/${name}\``)
          .join(" and ")}. None is deprecated.\n\n` +
        "### Connect and gRPC\n\n" +
        "Everything else is a method of a service of `proto/webhook/v1`: publishing, deliveries, replays, keys, statistics. Call methods " +
        "with JSON over HTTP (Connect), gRPC-Web or gRPC, with the same header:\n\n" +
        "```sh\n" +
        "curl http://localhost:8080/webhook.v1.DeliveryService/ListDeliveries \\\n" +
        `  -H "${KEY_HEADER}: $KEY" -H 'Content-Type: application/json' -d '{"pageSize": 10}'\n` +
        `grpcurl -plaintext -H "${KEY_HEADER}: $KEY" localhost:9090 webhook.v1.WebhookService/ListWebhooks\n` +
        "grpcurl -plaintext localhost:9090 list\n" +
        "```\n\n" +
        "gRPC has its own port without TLS (`GRPC_PORT`), and this one with TLS. Reflection lists the services and methods.",
    },
    // Relative to the location of this document.
    servers: [{ url: "/" }],
    tags: [
      { name: "webhooks", description: "Webhooks, and the event types they can be registered for." },
      ...versions(bindings).map((name) => ({
        name,
        description: `The same operations under the prefix /api/${name}.`,
      })),
    ],
    paths,
    webhooks,
    components: {
      securitySchemes: {
        [SECURITY_SCHEME]: {
          type: "apiKey",
          in: "header",
          name: KEY_HEADER,
          description: "An API key. `x-required-permission` names the permission required by an operation.",
        },
      },
      schemas: { ...answers.components(), ...payloads.components(), [FAILURE]: failureSchema },
      responses: failureResponses(),
      headers: rateLimitComponents,
    },
  };
}

/** `v1` of `/api/v1/webhook`; empty for a path without a version. */
function versionOf(path: string): string {
  return /^\/api\/(v\d+)\//.exec(path)?.[1] ?? "";
}

function versions(bindings: readonly RestBinding[]): string[] {
  return [...new Set(bindings.map(({ path }) => versionOf(path)))].filter((version) => version !== "").sort();
}

/** A message's name in components. Nested names are joined with an underscore. */
function flatName(desc: DescMessage): string {
  return desc.parent ? `${flatName(desc.parent)}_${desc.name}` : desc.name;
}
