import { startEmbeddedPostgres } from "../../../src/lib/dev-servers/postgres/embedded-postgres.ts";

/** A service to be killed: `start-servers.ts DATA_DIR postgres|temporal PORT [UI_PORT]`. Its progress goes to stderr. */
const [dataDir = "", which, port, uiPort] = process.argv.slice(2);
const progress = (line: string) => console.error(line);

if (which === "postgres") {
  const { url, pid } = await startEmbeddedPostgres({ dataDir, progress, port: Number(port) });
  console.log(JSON.stringify({ pid, url }));
} else {
  const { startEmbeddedTemporal } = await import(
    "../../../src/lib/dev-servers/temporal/embedded-temporal.ts"
  );
  const ports = { port: Number(port), uiPort: Number(uiPort) };
  const { address, pid } = await startEmbeddedTemporal({ dataDir, progress, ...ports });
  console.log(JSON.stringify({ pid, address }));
}
setInterval(() => {}, 1_000);
