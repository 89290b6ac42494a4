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

/** The maximum number of problems that are listed. */
const MAX_PROBLEMS = 100;
/** The maximum length of a text in a problem, in characters: names in descriptors may have any length. */
const MAX_TEXT = 600;

/** Collects the problems of a registration. The first 100 are listed, and the number of the others. */
export class Problems {
  readonly #listed: CatalogueProblem[] = [];
  #count = 0;

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  add({ file, line, subject, problem, remedy }: CatalogueProblem): void {
    this.#count += 1;
    if (this.#count > MAX_PROBLEMS) return;
    this.#listed.push({
      file: shortened(file),
      ...(line === undefined ? {} : { line }),
      subject: shortened(subject),
      problem: shortened(problem),
      remedy: shortened(remedy),
    });
  }

  list(): CatalogueProblem[] {
    const more = this.#count - this.#listed.length;
    if (more === 0) return this.#listed;
    const last = { file: "", subject: "", problem: `and ${more} more`, remedy: "Correct these first" };
    return [...this.#listed, last];
  }
}

function shortened(text: string): string {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}
