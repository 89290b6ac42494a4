import path from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Folders whose files take longest, for they wait for processes that start, die and are missed. */
const LONG = ["faults", "web", "workflows", "upgrade", "embedded"];

/**
 * Starts the files that take long first, so that no worker is left alone with one at the end, and takes turns among their
 * folders, so that not everything waits at the same time, nor everything computes.
 */
export class LongWaitsFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const turns = new Map<TestSpecification, number>();
    const seen = new Map<string, number>();
    for (const file of sorted) {
      const folder = path.basename(path.dirname(file.moduleId));
      if (!LONG.includes(folder)) continue;
      const turn = seen.get(folder) ?? 0;
      seen.set(folder, turn + 1);
      turns.set(file, turn);
    }
    const turnOf = (file: TestSpecification) => turns.get(file) ?? Number.POSITIVE_INFINITY;
    return sorted.sort((one, other) => (turnOf(one) === turnOf(other) ? 0 : turnOf(one) - turnOf(other)));
  }
}
