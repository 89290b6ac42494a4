import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { EventTypeChangeKind, EventTypeService } from "../gen/webhook/v1/event_type_pb.ts";
import { readEventTypesFrom } from "../src/event-types/index.ts";

const KINDS = new Map<number, string>(
  Object.entries(EventTypeChangeKind).map(([name, kind]) => [kind, name.toLowerCase()]),
);

const USAGE = `npm run events -- [--dry-run] FOLDER

Compiles the .proto files of a folder, or reads a .binpb file, and registers their event types at a running service.

  --dry-run      says what would change

  WEBHOOK_URL    the service. Defaults to http://localhost:8080
  WEBHOOK_KEY    an API key with Manage_Event_Types. Defaults to the content of .data/admin-key
`;

/** Registers the event types of a folder. Prints what has changed. */
async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    options: { "dry-run": { type: "boolean", default: false }, help: { type: "boolean", default: false } },
    allowPositionals: true,
  });
  const [folder] = positionals;
  if (values.help || folder === undefined) {
    console.log(USAGE);
    if (!values.help) process.exitCode = 1;
    return;
  }
  const { WEBHOOK_URL = "http://localhost:8080", WEBHOOK_KEY } = process.env;
  const key = WEBHOOK_KEY ?? (await readFile(".data/admin-key", "utf8")).trim();
  const transport = createConnectTransport({ baseUrl: WEBHOOK_URL, httpVersion: "1.1" });
  const { changes } = await createClient(EventTypeService, transport).registerEventTypes(
    { fileDescriptorSet: await readEventTypesFrom(folder), dryRun: values["dry-run"] },
    { headers: { "X-Service-Key": key } },
  );
  for (const { process: number, name, alias, kind, changes: what } of changes) {
    const named = alias === "" ? name : `${name} (${alias})`;
    const words = what.length > 0 ? `: ${what.join("; ")}` : "";
    console.log(`${number} ${named} ${KINDS.get(kind)}${words}`);
  }
}

await main().catch((error) => {
  console.error(error instanceof ConnectError ? error.rawMessage : (error as Error).message);
  process.exitCode = 1;
});
