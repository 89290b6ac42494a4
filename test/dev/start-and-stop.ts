import { userInfo } from "node:os";
import { startEmbeddedPostgres } from "../../src/dev/embedded-postgres.ts";
import { startEmbeddedTemporal } from "../../src/dev/embedded-temporal.ts";
import { lockDataDir } from "../../src/dev/service-lock.ts";

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
