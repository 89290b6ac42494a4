import { userInfo } from "node:os";
import { startEmbeddedPostgres } from "../../src/embedded/postgres/embedded-postgres.ts";
import { lockDataDir } from "../../src/embedded/service-lock.ts";
import { startEmbeddedTemporal } from "../../src/embedded/temporal/embedded-temporal.ts";

/** A whole service's servers, started and stopped: `start-and-stop.ts DATA_DIR`. Its progress goes to stderr. */
const [dataDir = ""] = process.argv.slice(2);
const progress = (line: string) => console.error(line);

const lock = await lockDataDir(dataDir);
const postgres = await startEmbeddedPostgres({ dataDir, progress });
const temporal = await startEmbeddedTemporal({ dataDir, progress });
const { uid } = userInfo();
await temporal.stop();
await postgres.stop();
await lock.release();
console.log(JSON.stringify({ uid, address: temporal.address, port: postgres.port }));
