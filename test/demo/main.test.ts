import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findRunningPostgres } from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/lib/dev-servers/postgres/postgres-home.ts";
import { temporalServers, temporaryFolder } from "../lib/dev-servers/support.ts";
import { anyPort } from "../support/any-port.ts";
import { part } from "../support/parts.ts";
import { node, ROOT, startProgram } from "../support/program.ts";

test("the demo ignores settings of other servers, and Ctrl-C while it delivers stops its own", async () => {
  await Promise.all([part("workflows"), part("page")]);
  const folder = await temporaryFolder();
  const none = `127.0.0.1:${await anyPort()}`;
  const demo = startProgram(node("demo/main.ts"), {
    environment: {
      HTTP_PORT: String(await anyPort()),
      GRPC_PORT: String(await anyPort()),
      DATA_DIR: folder,
      TEMPORAL_ADDRESS: none,
      TEMPORAL_NAMESPACE: "production",
      DATABASE_URL_FILE: path.join(ROOT, "no-such-file"),
      DATABASE_DIRECT_URL: `postgres://nobody:nothing@${none}/none`,
      SMTP_URL: `smtp://${none}`,
      TLS_CERT: path.join(ROOT, "no-such-file"),
    },
  });
  onTestFinished(() => void demo.process.kill("SIGKILL"));
  const dataDir = path.join(folder, "demo");
  // As root, its database is outside of the folder.
  onTestFinished(() => removeDataDir(dataDir));
  const running = async () => [
    (await findRunningPostgres(dataDir)) !== null,
    temporalServers(dataDir).length > 0,
  ];
  await demo.until(/good +gets .* answers 200/);
  expect(await running()).toEqual([true, true]);
  demo.process.kill("SIGINT");
  expect(await demo.ended).toBe(1);
  expect(demo.printed()).toContain("stopped before every delivery ended");
  expect(await running()).toEqual([false, false]);
});
