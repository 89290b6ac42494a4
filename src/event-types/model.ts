import type { DescEnum, DescEnumValue, DescField, DescMessage, DescOneof } from "@bufbuild/protobuf";

/** A file of the catalogue as stored: its path and the bytes of its FileDescriptorProto, with the comments of its declarations. */
export interface StoredFile {
  path: string;
  descriptor: Uint8Array;
}

/** An event type as stored. */
export interface StoredType {
  process: number;
  name: string;
  alias: string | null;
  /** The full name of its message. */
  message: string;
  /** The time since which no new webhooks are registered for it. */
  deprecated: Date | null;
}

/** A reason to refuse a registration. */
export interface CatalogueProblem {
  /** The path of the file. Empty if the problem is that of the whole set. */
  file: string;
  /** The line, starting at 1. Unknown without source information. */
  line?: number;
  /** The full name of what has the problem, such as `billing.v1.InvoicePaid.total`. */
  subject: string;
  problem: string;
  remedy: string;
}

/** An event type that a registration adds. */
export interface AddedType {
  /** Its number. Undefined if the service assigns the next one. */
  process?: number;
  name: string;
  alias: string | null;
  message: string;
}

/** What a registration would change. */
export interface RegistrationPlan {
  /** The files to store: those that are new, and those that differ from the stored file of their path. */
  files: StoredFile[];
  added: AddedType[];
  /** The stored event types that change, each with its changes in words and its alias from then on. */
  changed: { type: StoredType; changes: string[]; alias: string | null }[];
  /** The stored event types that the given files declare without a change. */
  unchanged: StoredType[];
  /** Empty, or the registration is refused with all of them. */
  problems: CatalogueProblem[];
}

/** What to do if descriptors are not what compilers write. */
export const COMPILE =
  "Compile the files with `buf build -o` or `protoc --include_imports --include_source_info --descriptor_set_out`";
/** The maximum number of problems that are listed. */
const MAX_PROBLEMS = 100;
/** The maximum length of a text in a problem, in characters: names in descriptors may have any length. */
const MAX_TEXT = 600;

/** A problem that makes it impossible to look for others. */
export class Refusal extends Error {
  readonly file: string;
  readonly remedy: string;

  constructor(file: string, problem: string, remedy = COMPILE) {
    super(problem);
    this.file = file;
    this.remedy = remedy;
  }
}

/** A plan that is refused. The first 100 problems are listed, and the number of the others. */
export function refused(problems: readonly CatalogueProblem[]): RegistrationPlan {
  const short = (text: string) => (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text);
  const listed = problems.slice(0, MAX_PROBLEMS).map(({ file, subject, problem, ...others }) => {
    return { ...others, file: short(file), subject: short(subject), problem: short(problem) };
  });
  const more = problems.length - listed.length;
  if (more > 0)
    listed.push({ file: "", subject: "", problem: `and ${more} more`, remedy: "Correct these first" });
  return { files: [], added: [], changed: [], unchanged: [], problems: listed };
}

/** What a problem can be about. */
export type Part = DescMessage | DescEnum | DescField | DescOneof | DescEnumValue;
/** Notes a problem. @param part undefined for the whole set */
export type Report = (part: Part | undefined, problem: string, remedy: string) => void;

/** The full name of a message or enum, or of a part of one. */
export function nameOf(part: Part): string {
  return "typeName" in part ? part.typeName : `${part.parent.typeName}.${part.name}`;
}
