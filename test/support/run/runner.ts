import path from "node:path";
import { TestRunner } from "vitest";

const BETWEEN = "test: between files";

/** Names the process of a worker by the file that runs in it, for `ps` and for the account of processor time. */
export default class NamingRunner extends TestRunner {
  override onCollectStart(file: Parameters<TestRunner["onCollectStart"]>[0]): void {
    super.onCollectStart(file);
    process.title = `test: ${path.relative(this.config.root, file.filepath).replaceAll(path.sep, "/")}`;
  }

  override onAfterRunFiles(files: Parameters<TestRunner["onAfterRunFiles"]>[0]): void {
    super.onAfterRunFiles(files);
    process.title = BETWEEN;
  }
}
