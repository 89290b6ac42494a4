import type { DescField, DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { authorise, KEY_HEADER } from "../auth.ts";
import type { ApiContext } from "../context.ts";
import { jsonWriter } from "../json/writer.ts";
import type { RestBinding } from "./bindings.ts";
import { addBodyParsers } from "./bodies.ts";
import { JSON_CONTENT_TYPE, successEnvelope } from "./envelope.ts";
import { readParameters } from "./parameters.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** Set on routes of the REST gateway. */
    rest?: RestBinding;
  }
  interface FastifyRequest {
    /** The request was read whole and the service called, gate and all. */
    called: boolean;
  }
}

/**
 * Mounts a route for each binding. Each calls the service of the same name through `transport`, so that the gate and
 * the interceptors of gRPC hold here too.
 */
export async function mountRestGateway(
  app: FastifyInstance,
  bindings: readonly RestBinding[],
  transport: Transport,
): Promise<void> {
  await addBodyParsers(app);
  for (const binding of bindings) {
    const writeData = dataWriter(binding.data);
    app.route({
      method: binding.httpMethod,
      url: binding.path,
      config: { rest: binding },
      handler: async (request, reply) => {
        const input = readParameters(binding.method.input, {
          query: request.query as Record<string, unknown>,
          body: request.body,
          bodyIsForm: /^application\/x-www-form-urlencoded\b/i.test(request.headers["content-type"] ?? ""),
        });
        request.called = true;
        const { message } = await transport.unary(
          binding.method,
          undefined,
          undefined,
          { [KEY_HEADER]: keyOf(request) },
          input,
        );
        return reply.type(JSON_CONTENT_TYPE).send(successEnvelope(writeData(message)));
      },
    });
  }
}

/**
 * Refuses a caller whose request could not be read, when the key alone is reason enough: what is wrong with a
 * request is told to those who may make it.
 *
 * @throws DomainError UNAUTHENTICATED or PERMISSION_DENIED
 */
export async function authoriseUnread(context: ApiContext, request: FastifyRequest): Promise<void> {
  const binding = request.routeOptions.config.rest;
  if (binding && !request.called) await authorise(context, binding.method, keyOf(request));
}

function keyOf(request: FastifyRequest): string {
  return String(request.headers[KEY_HEADER.toLowerCase()] ?? "");
}

/** Writes the field of a response that the envelope's Data is. */
function dataWriter(field: DescField): (response: MessageShape<DescMessage>) => string {
  const read = (response: MessageShape<DescMessage>) =>
    (response as unknown as Record<string, unknown>)[field.localName];
  if (field.fieldKind === "message") {
    const write = jsonWriter(field.message, "rest");
    return (response) => {
      const value = read(response);
      return value === undefined ? "null" : write(value as MessageShape<DescMessage>);
    };
  }
  if (field.fieldKind === "list" && field.listKind === "message") {
    const write = jsonWriter(field.message, "rest");
    return (response) => `[${(read(response) as MessageShape<DescMessage>[]).map(write).join(",")}]`;
  }
  throw new Error(`${field.parent.typeName}.${field.name}: Data must be a message or a list of messages`);
}
