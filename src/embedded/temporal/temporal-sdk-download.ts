import { TestWorkflowEnvironment } from "@temporalio/testing";

/**
 * A program of its own: `node temporal-sdk-download.ts FOLDER` lets Temporal's SDK download its CLI into FOLDER.
 * The SDK offers that only as a part of starting a server, so one is started and stopped.
 */
const [downloadDir] = process.argv.slice(2);
if (downloadDir === undefined) throw new Error("usage: temporal-sdk-download.ts FOLDER");

try {
  const environment = await TestWorkflowEnvironment.createLocal({
    server: { executable: { type: "cached-download", downloadDir } },
  });
  await environment.teardown();
} catch (error) {
  // One line, the last of our error output: the caller shows it.
  console.error((error as Error).message.replaceAll("\n", " "));
  process.exitCode = 1;
}
