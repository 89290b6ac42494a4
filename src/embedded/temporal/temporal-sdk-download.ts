import { TestWorkflowEnvironment } from "@temporalio/testing";

/**
 * A separate program: `node temporal-sdk-download.ts FOLDER` downloads the CLI into FOLDER with Temporal's SDK. The
 * SDK can do so only while starting a server, so one is started and stopped.
 */
const [downloadDir] = process.argv.slice(2);
if (downloadDir === undefined) throw new Error("usage: temporal-sdk-download.ts FOLDER");

try {
  const environment = await TestWorkflowEnvironment.createLocal({
    server: { executable: { type: "cached-download", downloadDir } },
  });
  await environment.teardown();
} catch (error) {
  // One line, the last on stderr, because the caller shows it.
  console.error((error as Error).message.replaceAll("\n", " "));
  process.exitCode = 1;
}
