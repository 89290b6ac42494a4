import { Readable } from "node:stream";
import type { DescField, Message } from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { jsonWriter } from "../../contract/json/writer.ts";
import { ADMISSION_HEADER, type Admissions, type Gate } from "../../keys/gate/index.ts";
import type { AddressReader } from "../context/client-address.ts";
import type { SilentDatabase } from "../context/silent-database.ts";
import type { RestBinding } from "./bindings.ts";
import { addBodyParsers, isForm } from "./bodies.ts";
import { callerOf } from "./caller.ts";
import { JSON_CONTENT_TYPE, successEnvelope, successEnvelopeOf } from "./envelope.ts";
import { readParameters } from "./parameters.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The name of the request's admission, on REST routes. */
    admission: string | undefined;
    /** Aborted when the caller leaves before the response, on REST routes. */
    gone: AbortSignal | undefined;
  }
}

/** Dependencies of the REST gateway. */
export interface RestGatewayOptions {
  bindings: readonly RestBinding[];
  /** Calls the services in memory. */
  transport: Transport;
  /** The keys for the services' gate. */
  admissions: Admissions;
  gate: Gate;
  database: SilentDatabase;
  readAddress: AddressReader;
}

/**
 * Mounts a route per binding. Each authenticates the key before it reads the request, and calls the method through
 * `transport`, so that the interceptors of gRPC apply.
 */
export async function mountRestGateway(app: FastifyInstance, options: RestGatewayOptions): Promise<void> {
  const { bindings, transport, admissions, gate, database, readAddress } = options;
  app.decorateRequest("admission", undefined);
  app.decorateRequest("gone", undefined);
  addBodyParsers(app);
  for (const binding of bindings) {
    const writeData = dataWriter(binding.data);
    const writeItems = (message: Message) => writeData(message).slice(1, -1);
    app.route({
      method: binding.httpMethod,
      url: binding.path,
      onRequest: async (request, reply) => {
        // Before the key is looked up: Node reports the end of a connection or stream only once.
        const gone = untilCallerGoes(reply);
        const caller = callerOf(request, reply, readAddress);
        const identity = await database.refuseWhileSilent(() => gate.admit(binding.method, caller));
        if (!identity) throw new Error(`${binding.method.name} has a REST route and needs no key`);
        gone.throwIfAborted();
        request.gone = gone;
        const admission = admissions.enter({ identity, address: caller.address });
        request.admission = admission;
        reply.raw.once("close", () => admissions.leave(admission));
      },
      handler: async (request, reply) => {
        const input = readParameters(binding.method.input, {
          query: request.query as Record<string, unknown>,
          body: request.body,
          bodyIsForm: isForm(request.headers["content-type"]),
        });
        const header = headersOf(request);
        const call = async (asked: Message) =>
          (await transport.unary(binding.method, request.gone, undefined, header, asked)).message;
        reply.type(JSON_CONTENT_TYPE);
        // The client takes pages as slowly as it likes, and its key may be revoked meanwhile.
        const callAgain = async (asked: Message) => {
          await database.refuseWhileSilent(() =>
            gate.recheck(binding.method, callerOf(request, reply, readAddress)),
          );
          return call(asked);
        };
        const { paging } = binding;
        if (paging) Object.assign(input, { [paging.size.localName]: REST_PAGE_SIZE });
        // Errors of the first page are sent in the envelope.
        const message = await call(input);
        if (paging && readField(paging.next, message) !== "") {
          // The length is not known, and HEAD needs no more pages.
          const pages =
            request.method === "HEAD" ? [] : allPages(paging, callAgain, input, message, writeItems);
          return reply.send(Readable.from(successEnvelopeOf(pages), AHEAD));
        }
        const warnings = binding.warnings ? (readField(binding.warnings, message) as string[]) : [];
        return reply.send(successEnvelope(writeData(message), warnings));
      },
    });
  }
}

/** The number of items of a page that REST reads: few enough that other requests hardly wait for one. */
const REST_PAGE_SIZE = 100;
/** Stream options: one page is read ahead of the client. */
const AHEAD = { highWaterMark: 1 };

/** The items of each page, as JSON, from the first one on. A page is read when the client has taken the previous one. */
async function* allPages(
  { token, next }: NonNullable<RestBinding["paging"]>,
  call: (asked: Message) => Promise<Message>,
  input: Message,
  first: Message,
  write: (page: Message) => string,
): AsyncGenerator<string> {
  for (let page = first; ; ) {
    yield write(page);
    const nextPageToken = readField(next, page);
    if (nextPageToken === "") return;
    page = await call({ ...input, [token.localName]: nextPageToken } as Message);
  }
}

function readField({ localName }: DescField, message: Message): unknown {
  return (message as unknown as Record<string, unknown>)[localName];
}

/** The headers of the call in memory: its admission, and the caller's trace. */
function headersOf(request: FastifyRequest): Record<string, string> {
  const { traceparent } = request.headers;
  return {
    [ADMISSION_HEADER]: request.admission as string,
    ...(typeof traceparent === "string" ? { traceparent } : {}),
  };
}

/** Aborted as a cancelled call when the connection or HTTP/2 stream closes before the response. */
function untilCallerGoes({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  // Not the framework's signal, which aborts when a request's body has been read.
  raw.once("close", () => {
    if (!raw.writableEnded) gone.abort(new ConnectError("the client cancelled the call", Code.Canceled));
  });
  return gone.signal;
}

/** Serializes the field of a response that becomes Data. */
function dataWriter(field: DescField): (response: Message) => string {
  if (field.fieldKind === "message") {
    const write = jsonWriter(field.message, "rest");
    return (response) => {
      const value = readField(field, response) as Message | undefined;
      return value === undefined ? "null" : write(value);
    };
  }
  if (field.fieldKind === "list" && field.listKind === "message") {
    const write = jsonWriter(field.message, "rest");
    return (response) => `[${(readField(field, response) as Message[]).map(write).join(",")}]`;
  }
  throw new Error(`${field.parent.typeName}.${field.name}: Data must be a message or a list of messages`);
}
