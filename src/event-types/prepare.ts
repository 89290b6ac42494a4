import {
  create,
  type DescEnum,
  type DescMessage,
  type FileRegistry,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import { nestedTypes } from "@bufbuild/protobuf/reflect";
import {
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  file_google_protobuf_timestamp,
} from "@bufbuild/protobuf/wkt";
import { buildFiles, inOrderOfImports } from "./build.ts";
import { changesBetween, checkOptions } from "./compare.ts";
import { buildEntries } from "./entries.ts";
import {
  type CatalogueProblem,
  nameOf,
  type Part,
  Refusal,
  type RegistrationPlan,
  type Report,
  refused,
  type StoredFile,
  type StoredType,
} from "./model.ts";
import { checkExample, checkPart, checkSizes, isOwn } from "./payloads.ts";
import { readSet } from "./read-set.ts";
import { checkTypes, type GivenType, readTypes } from "./types.ts";

/** What is registered. */
export interface Stored {
  files: readonly StoredFile[];
  types: readonly StoredType[];
}

type Declaration = DescMessage | DescEnum;
export type Place = Pick<CatalogueProblem, "file" | "line" | "subject">;

/** A plan that is still to be compared by buf, if it has `images`. */
export interface Prepared {
  plan: RegistrationPlan;
  /** FileDescriptorSets of what is stored and of what would be. */
  images?: { before: Uint8Array; after: Uint8Array };
  /** Where declarations are: by full name, and as buf names them: `billing.proto InvoicePaid`, `billing.proto InvoicePaid 4`. */
  places: ReadonlyMap<string, Place>;
}

/** Finds what a registration would change, or why it is refused, as far as buf does not say. Never throws for bad input. */
export function prepare(stored: Stored, given: Uint8Array): Prepared {
  const problems: CatalogueProblem[] = [];
  const places = new Map<string, Place>();
  try {
    return { ...planOf(stored, given, problems, places), places };
  } catch (error) {
    const unreadable = new Refusal("", `it is no FileDescriptorSet: ${(error as Error).message}`);
    const { file, message, remedy } = error instanceof Refusal ? error : unreadable;
    problems.push({ file, subject: file, problem: message, remedy });
  }
  return { plan: refused(problems), places };
}

function planOf(
  stored: Stored,
  given: Uint8Array,
  problems: CatalogueProblem[],
  places: Map<string, Place>,
): Omit<Prepared, "places"> {
  const { files: givenFiles, lines } = readSet(given);
  const oldFiles = stored.files.map(({ descriptor }) => fromBinary(FileDescriptorProtoSchema, descriptor));
  const before = buildFiles(oldFiles);
  const givenPaths = new Set(givenFiles.map(({ name }) => name));
  const placeOf = (part: Part): Place => {
    const { file } = "typeName" in part ? part : part.parent;
    const line = givenPaths.has(file.proto.name) ? lines.get(nameOf(part)) : undefined;
    return { file: file.proto.name, ...(line === undefined ? {} : { line }), subject: nameOf(part) };
  };
  const report: Report = (part, problem, remedy) =>
    problems.push({ ...(part ? placeOf(part) : { file: "", subject: "" }), problem, remedy });

  const declared = checkFiles(givenFiles, problems);
  const others = oldFiles
    .filter(({ name }) => !givenPaths.has(name))
    .map((file) => pruned(file, (name) => !declared.has(name), file.dependency));
  const built = buildFiles([...givenFiles, ...others]);
  const isGiven = (desc: Declaration) => givenPaths.has(desc.file.proto.name);
  const messages = [...built].filter((desc) => desc.kind === "message");
  const givenTypes = readTypes(messages.filter(isGiven), report);
  if (givenTypes.length === 0)
    report(undefined, "no message of the files is an event type", `Set the option of one: ${OPTION}`);
  checkTypes(givenTypes, stored.types, report);
  const roots = new Set(givenTypes.map(({ payload }) => payload));
  for (const { message, name } of stored.types) {
    const payload = built.getMessage(message);
    if (payload && (!isGiven(payload) || roots.has(payload))) roots.add(payload);
    else
      report(
        payload ?? before.getMessage(message),
        `the registered event type ${name} is missing: ${payload ? "its message has no option event_type" : "the file no longer declares its message"}`,
        "Keep the message and its option; to end an event type, call DeprecateEventType",
      );
  }
  const { names, parts, imports } = reach(roots);
  for (const part of parts.filter(isGiven)) {
    checkPart(part, report);
    const old = before.getMessage(part.typeName);
    if (part.kind === "message" && old) checkOptions(old, part, report);
  }
  checkSizes(roots, report);
  const fields = parts.filter(isGiven).flatMap((part) => (part.kind === "message" ? part.fields : []));
  if (problems.length === 0) for (const field of fields) checkExample(field, report);

  const oldBytes = new Map(stored.files.map(({ path, descriptor }) => [path, descriptor]));
  const after = [...givenFiles, ...others]
    .map((file) => pruned(file, (name) => names.has(name), [...(imports.get(file.name) ?? [])].sort()))
    .filter(({ name, messageType: [first], enumType: [other] }) => oldBytes.has(name) || first || other);
  const whole = after.map((file) => ({
    path: file.name,
    descriptor: toBinary(FileDescriptorProtoSchema, file),
  }));
  const types = givenTypes.map(({ payload: _, ...type }) => ({ process: 0, ...type, deprecated: null }));
  // What is stored is read by every process, and must not fail there.
  if (problems.length === 0)
    for (const entry of buildEntries(whole, [...stored.types, ...types])) void entry.payload;
  const files = whole.filter(
    ({ path, descriptor }) => Buffer.compare(oldBytes.get(path) ?? NONE, descriptor) !== 0,
  );
  for (const part of parts) {
    const { name, package: scope } = part.file.proto;
    const short = `${name} ${scope === "" ? part.typeName : part.typeName.slice(scope.length + 1)}`;
    places.set(part.typeName, placeOf(part)).set(short, placeOf(part));
    for (const each of part.kind === "enum" ? part.values : part.fields)
      places.set(nameOf(each), placeOf(each)).set(`${short} ${each.number}`, placeOf(each));
  }
  const changes = changesOf(stored.types, givenTypes, before, built);
  const plan = problems.length > 0 ? refused(problems) : { files, ...changes, problems: [] };
  if (files.length === 0) return { plan };
  return { plan, images: { before: imageOf(oldFiles), after: imageOf(after) } };
}

const NONE = new Uint8Array();
const OPTION = 'import "webhook/v1/options.proto"; option (webhook.v1.event_type) = {name: "InvoicePaid"};';

/** Checks given files as such. @returns the full names of what they declare, with their files' paths */
function checkFiles(files: readonly FileDescriptorProto[], problems: CatalogueProblem[]) {
  const declared = new Map<string, string>();
  for (const file of files) {
    const add = (subject: string, problem: string, remedy: string) =>
      problems.push({ file: file.name, subject, problem, remedy });
    if (/^webhook\/v1\//.test(file.name) || /^(?:webhook\.v1|google\.protobuf)(?:\.|$)/.test(file.package))
      add(file.package, "the package belongs to this service or to Protobuf", "Use a package of your own");
    for (const each of [...file.messageType, ...file.enumType]) {
      const name = fullName(file, each);
      const other = declared.get(name);
      if (other !== undefined) add(name, `${other} declares it too`, "Declare it once");
      declared.set(name, file.name);
    }
  }
  return declared;
}

function fullName(file: FileDescriptorProto, { name }: { name: string }): string {
  return file.package === "" ? name : `${file.package}.${name}`;
}

/**
 * Finds what event types consist of: declarations with all that is declared in them.
 *
 * @returns the names of the outermost declarations; all of them; and the paths of what each file imports for them
 */
function reach(roots: Iterable<DescMessage>) {
  const outermost = (desc: Declaration): Declaration => (desc.parent ? outermost(desc.parent) : desc);
  const reached = new Set(Array.from(roots, outermost));
  const parts: Declaration[] = [];
  const imports = new Map<string, Set<string>>();
  // Iterating over a set includes items added meanwhile.
  for (const top of reached)
    for (const part of top.kind === "message" ? [top, ...nestedTypes(top)] : [top]) {
      if (part.kind !== "message" && part.kind !== "enum") continue;
      parts.push(part);
      for (const field of part.kind === "message" ? part.fields : []) {
        const type = field.message ?? field.enum;
        if (!type) continue;
        if (!isOwn(type)) reached.add(outermost(type));
        const [from, to] = [part.file.proto.name, type.file.proto.name];
        if (from !== to) imports.getOrInsertComputed(from, () => new Set()).add(to);
      }
    }
  return { names: new Set(Array.from(reached, ({ typeName }) => typeName)), parts, imports };
}

/**
 * A file with nothing but some of its messages and enums and their comments, so that a change of anything else is none of the catalogue's.
 * Lines are not kept, because a change of one shifts all that follow.
 */
function pruned(
  file: FileDescriptorProto,
  isKept: (name: string) => boolean,
  dependency: string[],
): FileDescriptorProto {
  const paths = new Map<string, number[]>();
  const take = <Proto extends { name: string }>(number: number, protos: readonly Proto[]): Proto[] => {
    const kept: Proto[] = [];
    for (const [index, proto] of protos.entries())
      if (isKept(fullName(file, proto))) paths.set(`${number}.${index}`, [number, kept.push(proto) - 1]);
    return kept;
  };
  const { name, syntax, edition, options } = file;
  const [messageType, enumType] = [take(4, file.messageType), take(5, file.enumType)];
  const location = (file.sourceCodeInfo?.location ?? []).flatMap(
    ({ path: [number, index, ...rest], leadingComments, trailingComments }) => {
      const start = paths.get(`${number}.${index}`);
      return start ? [{ path: [...start, ...rest], span: [0, 0, 1], leadingComments, trailingComments }] : [];
    },
  );
  return create(FileDescriptorProtoSchema, {
    ...{ name, package: file.package, dependency, messageType, enumType, sourceCodeInfo: { location } },
    ...{ syntax, ...(edition ? { edition } : {}) },
    ...(options?.features ? { options: { features: options.features } } : {}),
  });
}

function imageOf(files: readonly FileDescriptorProto[]): Uint8Array {
  const file = inOrderOfImports([file_google_protobuf_timestamp.proto, ...files]);
  return toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file }));
}

function changesOf(
  stored: readonly StoredType[],
  given: readonly GivenType[],
  before: FileRegistry,
  built: FileRegistry,
) {
  const byMessage = new Map(given.map((type) => [type.message, type]));
  const changesIn = changesBetween(before);
  const changed: RegistrationPlan["changed"] = [];
  const unchanged: StoredType[] = [];
  for (const type of stored) {
    const now = byMessage.get(type.message);
    const alias = now?.alias ?? type.alias;
    const payload = built.getMessage(type.message);
    const changes = [
      alias === type.alias ? [] : `alias ${alias} added`,
      payload ? changesIn(payload) : [],
    ].flat();
    if (changes.length > 0) changed.push({ type, changes, alias });
    else if (now) unchanged.push(type);
    byMessage.delete(type.message);
  }
  const added = Array.from(byMessage.values(), ({ payload: _, ...type }) => type);
  return { added, changed, unchanged };
}
