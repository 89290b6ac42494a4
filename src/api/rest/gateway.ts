import type { DescField, DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { admit } from "../auth/auth.ts";
import type { AddressReader } from "../auth/client-address.ts";
import { KEY_HEADER } from "../auth/key-refusals.ts";
import type { ApiContext } from "../context.ts";
import { jsonWriter } from "../json/writer.ts";
import type { SilentDatabase } from "../silent-database.ts";
import { ADMISSION_HEADER, type Admissions } from "./admissions.ts";
import type { RestBinding } from "./bindings.ts";
import { addBodyParsers, isForm } from "./bodies.ts";
import { JSON_CONTENT_TYPE, successEnvelope } from "./envelope.ts";
import { readParameters } from "./parameters.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The name of the request's admission, on REST routes. */
    admission: string | undefined;
  }
}

/** Dependencies of the REST gateway. */
export interface RestGatewayOptions {
  context: ApiContext;
  bindings: readonly RestBinding[];
  /** Calls the services in memory. */
  transport: Transport;
  /** The keys for the services' gate. */
  admissions: Admissions;
  database: SilentDatabase;
  readAddress: AddressReader;
}

/**
 * Mounts a route per binding. Each authenticates the key before it reads the request, and calls the method through
 * `transport`, so that the interceptors of gRPC apply.
 */
export async function mountRestGateway(app: FastifyInstance, options: RestGatewayOptions): Promise<void> {
  const { context, bindings, transport, admissions, database, readAddress } = options;
  app.decorateRequest("admission", undefined);
  await addBodyParsers(app);
  for (const binding of bindings) {
    const writeData = dataWriter(binding.data);
    app.route({
      method: binding.httpMethod,
      url: binding.path,
      onRequest: async (request, reply) => {
        const key = await database.refuseWhileSilent(() =>
          admit(context, binding.method, {
            secret: keyOf(request),
            authorised: request.headers.authorization !== undefined,
            address: () => readAddress(request.raw),
            tell: (name, value) => reply.header(name, value),
          }),
        );
        if (!key) throw new Error(`${binding.method.name} has a REST route and needs no key`);
        const admission = admissions.enter(key);
        request.admission = admission;
        reply.raw.once("close", () => admissions.leave(admission));
      },
      handler: async (request, reply) => {
        const input = readParameters(binding.method.input, {
          query: request.query as Record<string, unknown>,
          body: request.body,
          bodyIsForm: isForm(request.headers["content-type"]),
        });
        const { message } = await transport.unary(
          binding.method,
          untilCallerGoes(reply),
          undefined,
          { [ADMISSION_HEADER]: request.admission as string },
          input,
        );
        return reply
          .type(JSON_CONTENT_TYPE)
          .send(successEnvelope(writeData(message), warningsOf(binding, message)));
      },
    });
  }
}

function keyOf(request: FastifyRequest): string {
  return String(request.headers[KEY_HEADER.toLowerCase()] ?? "");
}

/** Aborted when the connection or HTTP/2 stream closes before the response. */
function untilCallerGoes({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  // Not the framework's signal, which aborts when a request's body has been read.
  raw.once("close", () => {
    if (!raw.writableEnded) gone.abort();
  });
  return gone.signal;
}

function warningsOf({ warnings }: RestBinding, response: MessageShape<DescMessage>): string[] {
  return warnings ? ((response as unknown as Record<string, string[]>)[warnings.localName] ?? []) : [];
}

/** Serializes the field of a response that becomes Data. */
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
