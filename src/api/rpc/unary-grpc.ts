import type { DescMethod, DescMethodUnary } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  createHandlerContext,
  type MethodImpl,
} from "@connectrpc/connect";
import {
  assertByteStreamRequest,
  compressedFlag,
  compressionNegotiate,
  createAsyncIterable,
  createMethodSerializationLookup,
  encodeEnvelope,
  invokeUnaryImplementation,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
  uResponseOk,
  validateUniversalHandlerOptions,
} from "@connectrpc/connect/protocol";
import {
  grpcStatusOk,
  headerAcceptEncoding,
  headerContentType,
  headerEncoding,
  headerGrpcMessage,
  headerGrpcStatus,
  headerTimeout,
  parseTimeout,
  setTrailerStatus,
} from "@connectrpc/connect/protocol-grpc";
import { trailerFlag, trailerSerialize } from "@connectrpc/connect/protocol-grpc-web";
import { type OnRefused, withReason } from "../../calls/errors/index.ts";
import { ENVELOPE_HEAD_BYTES } from "../limits/whole-envelopes.ts";

/** Matches the content types of gRPC and gRPC-Web, and whether their messages are JSON. */
const GRPC_TYPE = /^application\/(grpc(?:-web)?)(?:\+(?:(json)(?:; ?charset=utf-?8)?|proto))?$/i;

/** The reason by which an answered call's signal is aborted. One for all, because each would capture its stack. */
const ANSWERED = new ConnectError("the call was answered", Code.Canceled);

/** The router, with `unaryGrpcHandler` for the calls of its unary methods by gRPC and gRPC-Web. */
export function withUnaryGrpc(
  router: ConnectRouter,
  options: ConnectRouterOptions,
  onRefused: OnRefused,
): ConnectRouter {
  const added: ConnectRouter = {
    ...router,
    rpc(method, impl, own) {
      router.rpc(method, impl, own);
      if (!isUnary(method)) return added;
      const place = router.handlers.length - 1;
      const general = router.handlers[place] as UniversalHandler;
      const unary = impl as MethodImpl<DescMethodUnary>;
      const grpc = unaryGrpcHandler(method, unary, { ...options, ...own }, onRefused);
      router.handlers[place] = Object.assign((request: UniversalServerRequest) => {
        const type = request.method === "POST" && GRPC_TYPE.exec(request.header.get(headerContentType) ?? "");
        const [, protocol = "", json] = type || [];
        return type ? grpc(request, protocol.toLowerCase(), json === undefined) : general(request);
      }, general);
      return added;
    },
  };
  return added;
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

/**
 * Handles calls of a unary method by gRPC and gRPC-Web, as the library's own handlers do and with their parts. The library passes
 * each message through a chain of a dozen generators, which suits streams. For a unary call, the chain costs more time than
 * the call itself.
 *
 * The body must consist of complete, uncompressed envelopes, one per chunk, as `withBoundedBody` provides it.
 *
 * @param onRefused called for errors that no interceptor has seen
 */
function unaryGrpcHandler(
  method: DescMethodUnary,
  impl: MethodImpl<DescMethodUnary>,
  options: ConnectRouterOptions,
  onRefused: OnRefused,
) {
  const known = validateUniversalHandlerOptions(options);
  const { acceptCompression, compressMinBytes, interceptors, requestGate } = known;
  const serialization = createMethodSerializationLookup(
    method,
    known.binaryOptions,
    known.jsonOptions,
    known,
  );
  const spec = { kind: "unary", method, impl } as const;

  return async (
    request: UniversalServerRequest,
    protocolName: string,
    binary: boolean,
  ): Promise<UniversalServerResponse> => {
    assertByteStreamRequest(request);
    const { header } = request;
    const timeout = parseTimeout(header.get(headerTimeout), known.maxTimeoutMs);
    const context = createHandlerContext({
      service: method.parent,
      method,
      protocolName,
      requestMethod: request.method,
      url: request.url,
      timeoutMs: timeout.timeoutMs,
      shutdownSignal: known.shutdownSignal,
      requestSignal: request.signal,
      requestHeader: header,
      responseHeader: {
        [headerContentType]: `application/${protocolName}+${binary ? "proto" : "json"}`,
      },
      responseTrailer: { [headerGrpcStatus]: grpcStatusOk },
      contextValues: request.contextValues,
      // The library's type does not allow undefined, but the library does.
    } as Parameters<typeof createHandlerContext>[0]);
    const { responseHeader, responseTrailer: trailer } = context;
    const accepted = header.get(headerAcceptEncoding);
    const { response: compression } = compressionNegotiate(
      acceptCompression,
      null,
      accepted,
      headerAcceptEncoding,
    );
    if (compression) responseHeader.set(headerEncoding, compression.name);
    const envelopes: Uint8Array<ArrayBuffer>[] = [];
    try {
      // Before the body is read.
      await requestGate?.(context);
      if (timeout.error) throw timeout.error;
      const input = serialization.getI(binary).parse(await onlyMessage(request.body));
      const output = await invokeUnaryImplementation(spec, context, input, interceptors);
      const message = serialization.getO(binary).serialize(output);
      const compressor = message.byteLength >= compressMinBytes ? compression : null;
      envelopes.push(
        compressor
          ? encodeEnvelope(compressedFlag, await compressor.compress(message))
          : encodeEnvelope(0, message),
      );
    } catch (raised) {
      const error = asConnectError(raised);
      const told = withReason(error, method.input);
      if (told !== error) onRefused(told);
      spelt(setTrailerStatus(trailer, told));
    } finally {
      context.abort(ANSWERED);
    }
    const response = { ...uResponseOk, header: responseHeader };
    if (protocolName === "grpc-web") {
      envelopes.push(encodeEnvelope(trailerFlag, trailerSerialize(trailer)));
      return { ...response, body: createAsyncIterable(envelopes) };
    }
    return { ...response, body: createAsyncIterable(envelopes), trailer };
  };
}

/**
 * Removes excess percent-encoding by the library from a status. gRPC encodes only non-printable ASCII and the percent sign, and
 * clients such as grpc-js decode only those.
 */
export function spelt(status: Headers): Headers {
  const message = status.get(headerGrpcMessage);
  if (message !== null) {
    const plain = decodeURIComponent(message);
    status.set(headerGrpcMessage, plain.replace(/[^\x20-\x24\x26-\x7e]+/g, encodeURIComponent));
  }
  return status;
}

/** The message of the only envelope. */
async function onlyMessage(envelopes: AsyncIterable<Uint8Array>): Promise<Uint8Array<ArrayBuffer>> {
  let message: Uint8Array | undefined;
  for await (const envelope of envelopes) {
    if (message) throw wrongNumber("received extra input message");
    message = envelope.subarray(ENVELOPE_HEAD_BYTES);
  }
  if (!message) throw wrongNumber("missing input message");
  return message as Uint8Array<ArrayBuffer>;
}

function wrongNumber(problem: string): ConnectError {
  return new ConnectError(`protocol error: ${problem} for unary method`, Code.Unimplemented);
}

function asConnectError(error: unknown): ConnectError {
  if (error instanceof ConnectError) return error;
  return new ConnectError("internal error", Code.Internal, undefined, undefined, error);
}
