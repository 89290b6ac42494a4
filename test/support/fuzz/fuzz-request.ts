import type { DescMethod } from "@bufbuild/protobuf";

/** The protocols that requests are made up for. "Raw" ones are bytes on a connection, valid or not. */
export type Protocol =
  | "REST"
  | "Connect JSON"
  | "Connect binary"
  | "Connect GET"
  | "Connect streams"
  | "gRPC"
  | "gRPC-Web"
  | "raw HTTP/1.1"
  | "raw HTTP/2";

/** One request, as it is sent. */
export interface FuzzRequest {
  protocol: Protocol;
  /** HTTP/2 goes to the gRPC listener, HTTP/1.1 to the other one. */
  over: "HTTP/1.1" | "HTTP/2";
  method: string;
  /** With its query. */
  path: string;
  headers: Record<string, string>;
  body?: Buffer | undefined;
  /** The client does not end the body. */
  unfinished?: boolean;
  /** The method that the path names; undefined for REST, and for paths that name none. */
  rpc?: DescMethod;
}

/** Longer bodies are cut where they are shown. */
const SHOWN_BYTES = 1_500;

/** A request as text, to be read and to be sent again by hand: each byte of the body is a character of Latin-1. */
export function showRequest({ body, rpc, ...request }: FuzzRequest): string {
  const shown = body?.toString("latin1", 0, SHOWN_BYTES);
  return JSON.stringify({ ...request, rpc: rpc?.toString(), bodyBytes: body?.length, body: shown }, null, 1);
}
