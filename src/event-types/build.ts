import { create, createFileRegistry, type DescFile, type FileRegistry } from "@bufbuild/protobuf";
import * as wkt from "@bufbuild/protobuf/wkt";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { file_webhook_v1_options } from "../../gen/webhook/v1/options_pb.ts";
import { Refusal } from "./model.ts";

/** The file of the options of event types. */
export const OPTIONS_FILE = "webhook/v1/options.proto";
/** The files of the service and of Protobuf itself: whatever a set has under these names, this service's versions are used. */
export const OWN_FILES = /^(?:webhook\/v1\/options\.proto$|google\/protobuf\/)/;
/** The maximum number of files that import the next one. */
const MAX_CHAIN = 500;

/** The files that match, by path. */
export const OWN: ReadonlyMap<string, DescFile> = new Map(
  [file_webhook_v1_options, ...Object.values(wkt)].flatMap((each) =>
    typeof each === "object" && "kind" in each && each.kind === "file" ? [[each.proto.name, each]] : [],
  ),
);

/** Files with what they import, each after its imports. Imports that do not exist are left out. @throws Refusal */
export function inOrderOfImports(files: readonly FileDescriptorProto[]): FileDescriptorProto[] {
  const byPath = new Map(files.map((file) => [file.name, file]));
  const ordered = new Map<string, FileDescriptorProto>();
  const open = new Set<string>();
  const visit = (file: FileDescriptorProto) => {
    if (ordered.has(file.name)) return;
    const path = [...open.add(file.name)];
    if (path.length > MAX_CHAIN)
      throw new Refusal(file.name, `more than ${MAX_CHAIN} files import each the next`, "Join some files");
    const dependency = file.dependency.filter((each) => byPath.has(each) || OWN.has(each));
    for (const each of dependency) {
      if (open.has(each)) {
        const circle = [...path.slice(path.indexOf(each)), each].join(", ");
        throw new Refusal(each, `these files import each other: ${circle}`, "Move what both need elsewhere");
      }
      visit((OWN.get(each)?.proto ?? byPath.get(each)) as FileDescriptorProto);
    }
    open.delete(file.name);
    const isWhole = dependency.length === file.dependency.length;
    const whole = () =>
      Object.assign(create(FileDescriptorProtoSchema), file, { dependency, publicDependency: [] });
    ordered.set(file.name, isWhole ? file : whole());
  };
  for (const file of files) visit(file);
  return [...ordered.values()];
}

/** Builds files and what they import. @throws Refusal if a descriptor is not valid */
export function buildFiles(files: readonly FileDescriptorProto[]): FileRegistry {
  const file = inOrderOfImports(files);
  try {
    return createFileRegistry({ $typeName: "google.protobuf.FileDescriptorSet", file });
  } catch (error) {
    const paths = new Set([...OWN.keys(), ...files.map(({ name }) => name)]);
    const missing = new Set(files.flatMap(({ dependency }) => dependency.filter((each) => !paths.has(each))));
    const lacks = missing.size === 0 ? "" : `; the set lacks ${[...missing].join(", ")}`;
    const { message } = error as Error;
    const of = files.find(({ name }) => message.includes(name));
    throw new Refusal(of?.name ?? "", `${message}${lacks}`);
  }
}

/** Builds a file with the built files that it imports. @throws Error if the descriptor is not valid */
export function buildFile(proto: FileDescriptorProto, imports: readonly DescFile[]): DescFile {
  // Without what they import in turn: the library would add each as often as there are ways to it.
  const direct = new Map(imports.map((file) => [file.proto.name, { ...file, dependencies: [] }]));
  const file = createFileRegistry(proto, (path) => direct.get(path)).getFile(proto.name) as DescFile;
  file.dependencies.splice(0, file.dependencies.length, ...imports);
  return file;
}
