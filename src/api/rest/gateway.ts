import type { DescField, DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { admit } from "../auth.ts";
import { ADDRESS_HEADER, type AddressReader } from "../client-address.ts";
import type { ApiContext } from "../context.ts";
import { jsonWriter } from "../json/writer.ts";
import { KEY_HEADER } from "../key-refusals.ts";
import { RATE_LIMIT_FIELDS } from "../request-limits.ts";
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
    /** Where the caller is. */
    callerAddress(): string;
  }
}

/** Lets requests tell where their callers are. */
export function knowCallers(app: FastifyInstance, read: AddressReader): void {
  app.decorateRequest("callerAddress", function (this: FastifyRequest) {
    return read(this.raw);
  });
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
        const { header, message } = await transport.unary(
          binding.method,
          untilCallerGoes(reply),
          undefined,
          { [KEY_HEADER]: keyOf(request), [ADDRESS_HEADER]: request.callerAddress() },
          input,
        );
        tellRateLimit(reply, header);
        return reply
          .type(JSON_CONTENT_TYPE)
          .send(successEnvelope(writeData(message), warningsOf(binding, message)));
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
export async function authoriseUnread(
  context: ApiContext,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const binding = request.routeOptions.config.rest;
  if (!binding || request.called) return;
  await admit(context, binding.method, {
    secret: keyOf(request),
    address: () => request.callerAddress(),
    tell: (name, value) => reply.header(name, value),
  });
}

/** Hands on what the gate said of the caller's limit, for answers and refusals alike. */
export function tellRateLimit(reply: FastifyReply, from: Headers): void {
  for (const name of RATE_LIMIT_FIELDS) {
    const value = from.get(name);
    if (value !== null) reply.header(name, value);
  }
}

function keyOf(request: FastifyRequest): string {
  return String(request.headers[KEY_HEADER.toLowerCase()] ?? "");
}

/** Comes when the connection, or the stream of HTTP/2, ends before the answer. */
function untilCallerGoes({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  // Not the framework's own signal: that comes as soon as a request's body is read.
  raw.once("close", () => {
    if (!raw.writableEnded) gone.abort();
  });
  return gone.signal;
}

function warningsOf({ warnings }: RestBinding, response: MessageShape<DescMessage>): string[] {
  return warnings ? ((response as unknown as Record<string, string[]>)[warnings.localName] ?? []) : [];
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
