import path from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Folders of `test` whose files take longest, because they wait for processes, windows or runs. */
const LONG = ["faults", "web", "workflows", "upgrade", "embedded", "process"];
/** Files of other folders that take as long. */
const LONG_FILES = ["clients/client-package.test.ts", "db/plans.test.ts", "api/auth/every-method.test.ts"];

/**
 * Starts the files that take long first, so that no worker is left alone with one at the end, and takes turns among their
 * folders, so that not everything waits at the same time, nor everything computes. Files that need a process each go
 * first, because each of them ends a shared process.
 */
export class LongWaitsFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const seen = new Map<string, number>();
    const turnOf = ({ project, moduleId }: TestSpecification): number => {
      const place = path.relative(path.join(project.config.root, "test"), moduleId).replaceAll(path.sep, "/");
      const [folder = ""] = place.split("/");
      if (project.config.isolate) return -1;
      if (LONG_FILES.includes(place)) return 0;
      if (!LONG.includes(folder)) return Number.MAX_VALUE;
      const turn = seen.get(folder) ?? 0;
      seen.set(folder, turn + 1);
      return turn;
    };
    return (await super.sort(files))
      .map((file) => ({ file, turn: turnOf(file) }))
      .sort((one, other) => one.turn - other.turn)
      .map(({ file }) => file);
  }
}
