import type { FastifyReply, FastifyRequest } from "fastify";
import { type Caller, KEY_HEADER } from "../../keys/gate/index.ts";
import type { AddressReader } from "../context/client-address.ts";

/** The caller of an HTTP request with the key in its header. */
export function callerOf(request: FastifyRequest, reply: FastifyReply, readAddress: AddressReader): Caller {
  return {
    secret: String(request.headers[KEY_HEADER.toLowerCase()] ?? ""),
    authorised: request.headers.authorization !== undefined,
    address: () => readAddress(request.raw),
    tell: (name, value) => reply.header(name, value),
  };
}
