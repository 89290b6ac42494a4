import path from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Folders of `test` whose files take longest, because they wait for processes, windows or runs. */
const LONG = ["faults", "web", "workflows", "upgrade", "embedded", "process"];
/** Files of other folders that take as long. */
const LONG_FILES = [
  "clients/client-package.test.ts",
  "db/plans.test.ts",
  "db/queue/storage-model.test.ts",
  "db/queue/without-statistics.test.ts",
  "api/auth/every-method.test.ts",
];

/**
 * Starts the files that take long first, so that no worker is left alone with one at the end, and takes turns among their
 * folders, so that not everything waits at the same time, nor everything computes. Files that need a process each go
 * first, because each of them ends a shared process.
 */
export class LongWaitsFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const turns = new Map<TestSpecification, number>();
    const seen = new Map<string, number>();
    for (const file of sorted) {
      const place = placeOf(file);
      const folder = place.split("/")[0] as string;
      if (file.project.config.isolate) turns.set(file, -1);
      else if (LONG_FILES.includes(place)) turns.set(file, 0);
      else if (LONG.includes(folder)) {
        const turn = seen.get(folder) ?? 0;
        seen.set(folder, turn + 1);
        turns.set(file, turn);
      }
    }
    const turnOf = (file: TestSpecification) => turns.get(file) ?? Number.POSITIVE_INFINITY;
    return sorted.sort((one, other) => (turnOf(one) === turnOf(other) ? 0 : turnOf(one) - turnOf(other)));
  }
}

/** The file's path in the folder `test`, with slashes. */
function placeOf({ project, moduleId }: TestSpecification): string {
  return path.relative(path.join(project.config.root, "test"), moduleId).replaceAll(path.sep, "/");
}
