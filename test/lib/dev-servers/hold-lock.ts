import { lockDataDir } from "../../../src/lib/dev-servers/service-lock.ts";

/** `hold-lock.ts DATA_DIR`: says whether it got the lock, and holds it until killed. */
try {
  await lockDataDir(process.argv[2] ?? "");
  console.log(JSON.stringify({ locked: true }));
  setInterval(() => {}, 1_000);
} catch (error) {
  console.log(JSON.stringify({ locked: false, message: (error as Error).message }));
}
