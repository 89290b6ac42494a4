import type { DescMethod } from "@bufbuild/protobuf";

/** The protocols that requests are made up for. "Raw" ones are bytes on a connection, valid or not. */
export const PROTOCOLS = [
  "REST",
  "Connect JSON",
  "Connect binary",
  "Connect GET",
  "Connect streams",
  "gRPC",
  "gRPC-Web",
  "raw HTTP/1.1",
  "raw HTTP/2",
] as const;
export type Protocol = (typeof PROTOCOLS)[number];

/** One request, as it is sent. */
export interface FuzzRequest {
  protocol: Protocol;
  /** HTTP/2 goes to the gRPC listener, HTTP/1.1 to the other one. */
  over: "HTTP/1.1" | "HTTP/2";
  method: string;
  /** With its query. */
  path: string;
  headers: Record<string, string>;
  body: Buffer | undefined;
  /** The client does not end the body. */
  unfinished: boolean;
  /** The method that the path names; undefined for REST, and for paths that name none. */
  rpc: DescMethod | undefined;
}

/** Longer bodies are cut where they are shown. */
const SHOWN_BYTES = 1_500;

/** A request as text, to be read and to be sent again by hand. */
export function showRequest({ body, rpc, ...request }: FuzzRequest): string {
  const bytes = body?.subarray(0, SHOWN_BYTES);
  const isText = bytes !== undefined && /^[\x20-\x7e\s]*$/.test(bytes.toString("latin1"));
  const shown = {
    ...request,
    rpc: rpc?.toString(),
    bodyBytes: body?.length,
    ...(isText ? { body: bytes.toString() } : { bodyBase64: bytes?.toString("base64") }),
  };
  return JSON.stringify(shown, null, 1);
}
