import { type DescFile, type DescService, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ServiceImpl } from "@connectrpc/connect";
import { file_google_rpc_error_details } from "../../../gen/google/rpc/error_details_pb.ts";
import type {
  ServerReflection,
  ServerReflectionRequest,
  ServerReflectionResponseSchema,
} from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { isRegistered, perCatalogue } from "../../contract/catalogue.ts";
import { buildAhead } from "../../event-types/index.ts";
import { untilAborted } from "../context/ending.ts";
import { type DescriptorIndex, indexDescriptors, withImports } from "./descriptor-index.ts";

type Answer = NonNullable<MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"]>;

/**
 * gRPC server reflection, for clients without the proto files, such as grpcurl. Includes the types of error details,
 * so that these clients can show them.
 *
 * Versions v1 and v1alpha differ only in their package, so this serves both.
 *
 * @param services all services, including reflection
 * @param stopping ends the streams, which clients would keep open
 */
export function reflectionService(
  services: readonly DescService[],
  stopping: AbortSignal,
): ServiceImpl<typeof ServerReflection> {
  const own = indexDescriptors([...services.map(({ file }) => file), file_google_rpc_error_details]);
  const serialize = createSerializer();
  return {
    async *serverReflectionInfo(requests) {
      /** The files already sent on this stream, which are not sent again as imports. */
      const told = new Set<string>();
      for await (const request of untilAborted(requests, stopping)) {
        const indexes = [own, await registeredIndex()];
        yield {
          validHost: request.host,
          originalRequest: request,
          messageResponse: answer(request, services, indexes, (file) => filesAnswer(file, told, serialize)),
        };
      }
    },
  };
}

function answer(
  { messageRequest: asked }: ServerReflectionRequest,
  services: readonly DescService[],
  indexes: readonly DescriptorIndex[],
  files: (file: DescFile | undefined) => Answer | undefined,
): Answer {
  switch (asked.case) {
    case "listServices": {
      const service = services.map(({ typeName }) => ({ name: typeName }));
      return { case: "listServicesResponse", value: { service } };
    }
    case "fileByFilename":
      return files(first(indexes, (index) => index.file(asked.value))) ?? notFound(`file ${asked.value}`);
    case "fileContainingSymbol":
      return (
        files(first(indexes, (index) => index.fileOfSymbol(asked.value))) ?? notFound(`symbol ${asked.value}`)
      );
    case "fileContainingExtension": {
      const { containingType, extensionNumber } = asked.value;
      return (
        files(first(indexes, (index) => index.fileOfExtension(containingType, extensionNumber))) ??
        notFound(`extension ${extensionNumber} of ${containingType}`)
      );
    }
    case "allExtensionNumbersOfType": {
      const extensionNumber = first(indexes, (index) => index.extensionNumbers(asked.value));
      if (!extensionNumber) return notFound(`message ${asked.value}`);
      const value = { baseTypeName: asked.value, extensionNumber };
      return { case: "allExtensionNumbersResponse", value };
    }
    default:
      return failure(Code.InvalidArgument, "the request asks for nothing; set message_request");
  }
}

/** The file and its imports, except imports already sent. */
function filesAnswer(
  file: DescFile | undefined,
  told: Set<string>,
  serialize: (file: DescFile) => Uint8Array,
): Answer | undefined {
  if (!file) return undefined;
  // By path: registered files bring their own copies of what they import.
  const needed = [...withImports(file)].filter((each) => each === file || !told.has(each.proto.name));
  for (const each of needed) told.add(each.proto.name);
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto: needed.map(serialize) } };
}

/** Serializes each file once: with its imports, a file of the contract takes about a millisecond. */
function createSerializer(): (file: DescFile) => Uint8Array {
  const known = new WeakMap<DescFile, Uint8Array>();
  return (file) => known.getOrInsertComputed(file, () => toBinary(FileDescriptorProtoSchema, file.proto));
}

/** The files of the registered event types that this process knows. */
const registeredIndex = perCatalogue(async (types) => {
  const registered = types.filter(({ number }) => isRegistered(number));
  await buildAhead(registered);
  return indexDescriptors(new Set(registered.map(({ payload }) => payload.file)));
});

/** What the first of several indexes that has it says. */
function first<T>(
  indexes: readonly DescriptorIndex[],
  read: (index: DescriptorIndex) => T | undefined,
): T | undefined {
  for (const index of indexes) {
    const found = read(index);
    if (found !== undefined) return found;
  }
  return undefined;
}

function notFound(what: string): Answer {
  return failure(Code.NotFound, `there is no ${what}; list the services to see what there is`);
}

function failure(errorCode: Code, errorMessage: string): Answer {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
}
