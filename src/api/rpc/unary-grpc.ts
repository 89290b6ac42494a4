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
  contentTypeJson,
  contentTypeProto,
  grpcStatusOk,
  headerAcceptEncoding,
  headerContentType,
  headerEncoding,
  headerGrpcStatus,
  headerTimeout,
  parseContentType,
  parseTimeout,
  setTrailerStatus,
} from "@connectrpc/connect/protocol-grpc";
import { ENVELOPE_HEAD_BYTES } from "../limits/whole-envelopes.ts";

/** The reason by which an answered call's signal is aborted. One for all, because each would capture its stack. */
const ANSWERED = new ConnectError("the call was answered", Code.Canceled);

/** Handles one gRPC call of a unary method. */
type UnaryGrpcHandler = (request: UniversalServerRequest) => Promise<UniversalServerResponse>;

/** The router, with `unaryGrpcHandler` for gRPC calls of the unary methods that are added to it. */
export function withUnaryGrpc(router: ConnectRouter, options: ConnectRouterOptions): ConnectRouter {
  const added: ConnectRouter = {
    ...router,
    rpc(method, impl, own) {
      router.rpc(method, impl, own);
      if (!isUnary(method)) return added;
      const place = router.handlers.length - 1;
      const general = router.handlers[place] as UniversalHandler;
      const grpc = unaryGrpcHandler(method, impl as MethodImpl<DescMethodUnary>, { ...options, ...own });
      router.handlers[place] = Object.assign(
        (request: UniversalServerRequest) => (isGrpc(request) ? grpc(request) : general(request)),
        general,
      );
      return added;
    },
  };
  return added;
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function isGrpc({ method, header }: UniversalServerRequest): boolean {
  return method === "POST" && parseContentType(header.get(headerContentType)) !== undefined;
}

/**
 * Handles gRPC calls of a unary method, as the library's own handler does and with its parts. The library passes each
 * message through a chain of a dozen generators, which suits streams. For a unary call, the chain costs more time than
 * the call itself.
 *
 * The body must consist of complete, uncompressed envelopes, one per chunk, as `withBoundedBody` provides it.
 */
function unaryGrpcHandler(
  method: DescMethodUnary,
  impl: MethodImpl<DescMethodUnary>,
  options: ConnectRouterOptions,
): UnaryGrpcHandler {
  const known = validateUniversalHandlerOptions(options);
  const { acceptCompression, compressMinBytes, interceptors, requestGate } = known;
  const serialization = createMethodSerializationLookup(
    method,
    known.binaryOptions,
    known.jsonOptions,
    known,
  );
  const spec = { kind: "unary", method, impl } as const;

  return async (request) => {
    assertByteStreamRequest(request);
    const { header } = request;
    const binary = parseContentType(header.get(headerContentType))?.binary ?? true;
    const timeout = parseTimeout(header.get(headerTimeout), known.maxTimeoutMs);
    const context = createHandlerContext({
      service: method.parent,
      method,
      protocolName: "grpc",
      requestMethod: request.method,
      url: request.url,
      timeoutMs: timeout.timeoutMs,
      shutdownSignal: known.shutdownSignal,
      requestSignal: request.signal,
      requestHeader: header,
      responseHeader: { [headerContentType]: binary ? contentTypeProto : contentTypeJson },
      responseTrailer: { [headerGrpcStatus]: grpcStatusOk },
      contextValues: request.contextValues,
      // The library's type does not allow undefined, but the library does.
    } as Parameters<typeof createHandlerContext>[0]);
    const compression = compressionNegotiate(
      acceptCompression,
      header.get(headerEncoding),
      header.get(headerAcceptEncoding),
      headerAcceptEncoding,
    );
    if (compression.response) context.responseHeader.set(headerEncoding, compression.response.name);
    const response = { ...uResponseOk, header: context.responseHeader, trailer: context.responseTrailer };
    try {
      // Before the body is read.
      await requestGate?.(context);
      if (compression.error) throw compression.error;
      if (timeout.error) throw timeout.error;
      const input = serialization.getI(binary).parse(await onlyMessage(request.body));
      const output = await invokeUnaryImplementation(spec, context, input, interceptors);
      const message = serialization.getO(binary).serialize(output);
      const compressor = message.byteLength >= compressMinBytes ? compression.response : null;
      const envelope = compressor
        ? encodeEnvelope(compressedFlag, await compressor.compress(message))
        : encodeEnvelope(0, message);
      return { ...response, body: createAsyncIterable([envelope as Uint8Array<ArrayBuffer>]) };
    } catch (error) {
      setTrailerStatus(context.responseTrailer, asConnectError(error));
      return response;
    } finally {
      context.abort(ANSWERED);
    }
  };
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
