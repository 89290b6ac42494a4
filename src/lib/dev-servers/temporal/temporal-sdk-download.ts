import { TestWorkflowEnvironment } from "@temporalio/testing";

/**
 * A separate program that downloads the CLI into its working directory with Temporal's SDK, which has no way to cancel
 * a download. The SDK can download only while starting a server, so one is started and stopped.
 */

// The download may use a proxy, but the SDK's connection to that server may not.
process.env.no_grpc_proxy = "127.0.0.1";
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
