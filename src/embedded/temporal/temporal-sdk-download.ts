import { TestWorkflowEnvironment } from "@temporalio/testing";

/**
 * A separate program that downloads the CLI into its working directory with Temporal's SDK, which has no way to cancel
 * a download. The SDK can download only while starting a server, so one is started and stopped.
 */
try {
  const environment = await TestWorkflowEnvironment.createLocal({
    server: { executable: { type: "cached-download", downloadDir: process.cwd() } },
  });
  await environment.teardown();
} catch (error) {
  // One line, the last on stderr, because the caller shows it.
  console.error((error as Error).message.replaceAll("\n", " "));
  process.exitCode = 1;
}
