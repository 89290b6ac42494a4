import { writeFile } from "node:fs/promises";
import path from "node:path";
import { type Finding, inPrivateFolder, runBuf } from "./buf.ts";
import { type CatalogueProblem, COMPILE } from "./model.ts";
import type { Place, Prepared } from "./prepare.ts";

/**
 * buf's rules for receivers, which read names in JSON, and for publishers, which write numbers. What only generated code of other
 * languages notices is allowed.
 */
const RULES = [
  ...[
    "FIELD_NO_DELETE",
    "FIELD_SAME_NAME",
    "FIELD_SAME_JSON_NAME",
    "FIELD_SAME_TYPE",
    "FIELD_SAME_CARDINALITY",
  ],
  ...["FIELD_SAME_ONEOF", "FIELD_SAME_DEFAULT", "ONEOF_NO_DELETE", "ENUM_VALUE_NO_DELETE"],
  ...["ENUM_VALUE_SAME_NAME", "ENUM_SAME_TYPE", "RESERVED_MESSAGE_NO_DELETE", "RESERVED_ENUM_NO_DELETE"],
];
/** The time for the comparison, in milliseconds. 5,000 event types take four seconds on an idle machine. */
const TIMEOUT_MS = 60_000;
const REMEDY =
  "Undo the change, and add another field or value with another name and number; say in the old one's comment that it is no longer used";

/** Finds what is not valid in the files that are to be stored, and changes that break receivers or publishers, by `buf breaking`. */
export async function findBreakingChanges(
  { before, after }: NonNullable<Prepared["images"]>,
  places: ReadonlyMap<string, Place>,
  signal?: AbortSignal,
): Promise<CatalogueProblem[]> {
  const config = JSON.stringify({ version: "v2", breaking: { use: RULES } });
  const found = await inPrivateFolder(async (folder) => {
    const [old, now] = [path.join(folder, "before.binpb"), path.join(folder, "after.binpb")];
    await Promise.all([writeFile(old, before), writeFile(now, after)]);
    const args = ["breaking", now, "--against", old, "--config", config, "--against-config", config];
    return runBuf(args, folder, signal, TIMEOUT_MS);
  });
  const remedyOf = ({ type }: Finding) => (type ? REMEDY : `${COMPILE}, or register fewer files at once`);
  return found.map((each) => ({ ...placeOf(each, places), problem: each.message, remedy: remedyOf(each) }));
}

/** Where `Field "4" with name "total" on message "InvoicePaid" changed type …` is: the files that buf gets have no lines. */
function placeOf({ path: file = "", message }: Finding, places: ReadonlyMap<string, Place>): Place {
  const name = /\b(?:message|enum) "([^"]+)"/.exec(message)?.[1] ?? "";
  const number = /^(?:Field|Enum value) "(\d+)"/.exec(message)?.[1];
  // Without a file, messages have full names: `message field "billing.v1.InvoicePaid.id" has an invalid …`.
  const quoted = /"([\w.]+)"/.exec(message)?.[1] ?? "";
  const keys = [`${file} ${name} ${number}`, `${file} ${name}`, quoted];
  return keys.map((key) => places.get(key)).find((place) => place) ?? { file, subject: name };
}
