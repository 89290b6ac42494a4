import type { DescEnum, DescMessage, FileRegistry } from "@bufbuild/protobuf";
import { toBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { findBreakingChanges } from "./breaking.ts";
import { buildFiles, inOrderOfImports } from "./build.ts";
import { Changes, findOptionChanges } from "./compare.ts";
import {
  type Declaration,
  type DeclaredMessage,
  declarationsOf,
  importsOptions,
  placeOf,
  symbolsOf,
} from "./declarations.ts";
import { Problems, type RegistrationPlan, type StoredFile, type StoredType } from "./model.ts";
import { checkExamples, checkParts, checkSize } from "./payloads.ts";
import { prune } from "./prune.ts";
import { reach } from "./reach.ts";
import { readSet, readStored, type SourceFile } from "./read-set.ts";
import { checkTypes, type GivenType, readTypes } from "./types.ts";

const OPTION = 'option (webhook.v1.event_type) = {name: "InvoicePaid"}';

/**
 * Finds what a registration would change, or why it is refused. Never throws for bad input. Files that are not given stay; a given one
 * replaces the stored one of its path.
 *
 * @param stored what is registered
 * @param given a FileDescriptorSet of at most 16 MiB
 * @throws Error if buf is not installed, or the signal is aborted
 */
export async function planRegistration(
  stored: { files: readonly StoredFile[]; types: readonly StoredType[] },
  given: Uint8Array,
  signal?: AbortSignal,
): Promise<RegistrationPlan> {
  const problems = new Problems();
  const refused = () => ({ files: [], added: [], changed: [], unchanged: [], problems: problems.list() });
  const givenFiles = readSet(given, problems);
  if (!problems.isEmpty) return refused();
  const oldFiles = stored.files.map(({ path, descriptor }) => readStored(path, descriptor));
  const files = new Map([...oldFiles, ...givenFiles].map((file) => [file.path, file]));
  checkFiles(givenFiles, problems);

  const symbols = symbolsOf([...files.values()], problems);
  const givenMessages = [...symbols.values()].filter((each) => each.kind === "message" && each.file.isGiven);
  const givenTypes = readTypes(givenMessages as DeclaredMessage[], files, problems);
  if (givenTypes.length === 0)
    problems.add({
      file: "",
      subject: "",
      problem: "no message of the files is an event type",
      remedy: `Set the option of one: import "webhook/v1/options.proto"; ${OPTION};`,
    });
  checkTypes(givenTypes, stored.types, problems);
  const pathsBefore = new Map(
    oldFiles.flatMap((file) => declarationsOf(file).map(({ name }) => [name, file.path])),
  );
  checkStillThere(stored.types, givenTypes, symbols, pathsBefore, problems);

  const roots = new Set(givenTypes.map(({ declared }) => declared));
  for (const { message } of stored.types) {
    const declared = symbols.get(message);
    if (declared?.kind === "message") roots.add(declared);
  }
  const reached = reach([...roots], symbols, files, problems);
  if (!problems.isEmpty) return refused();

  const protos = new Set([...reached].map(({ proto }) => proto));
  const pruned = [...files.values()].map((file) =>
    prune(file, protos, symbols, !file.isGiven || importsOptions(file, files)),
  );
  const built = build(pruned, problems);
  if (!built) return refused();
  const before = buildFiles(oldFiles.map(({ proto }) => proto));
  const parts = [...reached].flatMap((declared) => {
    const desc = built.get(declared.name) as DescMessage | DescEnum | undefined;
    return desc ? [[desc, declared] as const] : [];
  });
  checkParts(parts, problems);
  for (const declared of roots) {
    const payload = built.getMessage(declared.name);
    if (payload) checkSize(payload, declared, problems);
  }
  if (problems.isEmpty) checkExamples(parts, problems);
  findOptionChanges(before, built, symbols, problems);
  const changed = changedFiles(stored.files, pruned);
  const storedPaths = new Set(oldFiles.map(({ path }) => path));
  if (changed.some(({ path }) => storedPaths.has(path)))
    await findBreakingChanges(
      oldFiles.map(({ proto }) => proto),
      pruned,
      symbols,
      problems,
      signal,
    );
  if (!problems.isEmpty) return refused();
  return {
    files: changed,
    ...changesOf(stored.types, givenTypes, before, built),
    problems: [],
  };
}

/** Checks given files as such. */
function checkFiles(given: readonly SourceFile[], problems: Problems): void {
  const { circle } = inOrderOfImports(given.map(({ proto }) => proto));
  if (circle)
    problems.add({
      file: circle[0] ?? "",
      subject: circle[0] ?? "",
      problem: `these files import each other: ${circle.join(", ")}`,
      remedy: "Move what both need to a file of its own",
    });
  for (const { path, proto } of given)
    if (/^webhook\/v1\//.test(path) || /^(?:webhook\.v1|google\.protobuf)(?:\.|$)/.test(proto.package))
      problems.add({
        file: path,
        subject: proto.package,
        problem: "the package belongs to this service or to Protobuf",
        remedy:
          "Leave the file out, or use a package of your own; import webhook/v1/options.proto by this path",
      });
}

/** Checks that the registered event types are still event types. */
function checkStillThere(
  stored: readonly StoredType[],
  given: readonly GivenType[],
  symbols: ReadonlyMap<string, Declaration>,
  storedFileOf: ReadonlyMap<string, string>,
  problems: Problems,
): void {
  const givenMessages = new Set(given.map(({ message }) => message));
  for (const { message, name } of stored) {
    const declared = symbols.get(message);
    if (declared?.kind === "message" && (!declared.file.isGiven || givenMessages.has(message))) continue;
    const place = declared ? placeOf(declared) : { file: storedFileOf.get(message) ?? "", subject: message };
    problems.add({
      ...place,
      problem: `the registered event type ${name} is missing: ${declared ? "its message has no option event_type" : "the file no longer declares its message"}`,
      remedy: "Keep the message and its option; to end an event type, call DeprecateEventType",
    });
  }
}

function build(files: readonly FileDescriptorProto[], problems: Problems): FileRegistry | undefined {
  const { circle } = inOrderOfImports(files);
  try {
    return buildFiles(files);
  } catch (error) {
    problems.add({
      file: circle?.[0] ?? "",
      subject: circle?.[0] ?? "",
      problem: (error as Error).message,
      remedy: circle
        ? "Move what both need to a file of its own"
        : "Compile the files with `buf build -o` or `protoc --include_imports --descriptor_set_out`",
    });
    return undefined;
  }
}

/** The files that are not stored as they are, as they are to be stored. */
function changedFiles(stored: readonly StoredFile[], pruned: readonly FileDescriptorProto[]): StoredFile[] {
  const before = new Map(stored.map(({ path, descriptor }) => [path, descriptor]));
  return pruned.flatMap((file) => {
    const old = before.get(file.name);
    if (!old && file.messageType.length + file.enumType.length === 0) return [];
    const descriptor = toBinary(FileDescriptorProtoSchema, file);
    return old && Buffer.compare(old, descriptor) === 0 ? [] : [{ path: file.name, descriptor }];
  });
}

function changesOf(
  stored: readonly StoredType[],
  given: readonly GivenType[],
  before: FileRegistry,
  built: FileRegistry,
): Pick<RegistrationPlan, "added" | "changed" | "unchanged"> {
  const givenByMessage = new Map(given.map((type) => [type.message, type]));
  const words = new Changes(before);
  const changed: RegistrationPlan["changed"] = [];
  const unchanged: StoredType[] = [];
  for (const type of stored) {
    const now = givenByMessage.get(type.message);
    const alias = now?.alias ?? type.alias;
    const payload = built.getMessage(type.message);
    const changes = [
      ...(alias === type.alias ? [] : [`alias ${alias} added`]),
      ...(payload ? words.of(payload) : []),
    ];
    if (changes.length > 0) changed.push({ type, changes, alias });
    else if (now) unchanged.push(type);
  }
  const known = new Set(stored.map(({ message }) => message));
  const added = given.flatMap(({ declared: _, ...type }) => (known.has(type.message) ? [] : [type]));
  return { added, changed, unchanged };
}
