import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { lock, waitingQueries } from "../support/grpc-calls.ts";
import { useApi } from "../support/test-api.ts";
import { createDependent, examples, expectCalls, expectPublishing, STRICT, tsc } from "./dependent.ts";
import { createOutbox } from "./outbox.ts";
import { GO_ENVIRONMENT, goMinorVersion, has, pythonFolder } from "./toolchains.ts";

const api = await useApi();
const dependent = await createDependent(api);
const { environment, run, copy } = dependent;
afterAll(() => dependent.remove());

test("the client package is installed with the oldest peers that it allows, and works with them", async () => {
  const oldest = await createDependent(api, ["oldest-protobuf", "oldest-connect"]);
  onTestFinished(() => oldest.remove());
  await writeFile(
    path.join(oldest.folder, "oldest.ts"),
    `import { createRouterTransport } from "@connectrpc/connect";
    import { createWebhookClients, WebhookProcess, WebhookService } from "@webhook-service/client";
    const { webhooks } = createWebhookClients(createRouterTransport(({ service }) => {
      service(WebhookService, {
        createWebhook: ({ process, url }) => ({ webhook: { id: 2n ** 60n, webhookProcess: process, url } }),
      });
    }));
    const process = WebhookProcess.DOCUMENT_CREATED;
    const { webhook } = await webhooks.createWebhook({ process, url: "https://receiver.example" });
    console.log(webhook?.id, webhook?.webhookProcess, webhook?.url);`,
  );
  await oldest.run(tsc, [...STRICT, "oldest.ts"]);
  const printed = await oldest.run(process.execPath, ["oldest.ts"]);
  expect(printed).toBe("1152921504606846976n 2 https://receiver.example\n");
});

const skipped = (isThere: boolean, what: string) => (isThere ? "" : ` (skipped: ${what})`);
const hasPython = has("python3", "-m", "venv", "-h");
/** Earlier ones do not fetch the version that a module asks for. */
const hasGo = hasPython && goMinorVersion() >= 21;
const hasGrpcurl = has("grpcurl", "-version");
const publishing = path.join(examples, "publishing");

describe.skipIf(!hasPython)(`with Python${skipped(hasPython, "there is no python3 with venv")}`, () => {
  beforeAll(async () => {
    environment.PATH = `${await pythonFolder()}${path.delimiter}${environment.PATH}`;
    await run("sh", ["-eu", path.join(examples, "grpcio-generate.sh")], {
      env: { OUT_DIR: dependent.folder },
    });
  });

  test("the example with grpcio publishes an event and lists the webhooks", async () => {
    await copy("grpcio.py", "call_webhook_service.py");
    await expectCalls(api, await run("python3", ["call_webhook_service.py"]), "grpcio-1001");
  });

  test("so it does from the folder of the repository, with modules beside it", async () => {
    const generated = path.join(examples, "webhook");
    onTestFinished(() => rm(generated, { recursive: true, force: true }));
    await run("sh", ["-eu", path.join(examples, "grpcio-generate.sh")]);
    await expectCalls(api, await run("python3", [path.join(examples, "grpcio.py")]), "grpcio-1001");
  });

  test("the example publishes one event, a batch and a stream, repeats a lost call, and reads errors", async () => {
    await copy("publishing/publishing.py");
    await expectPublishing(api, "python", (env) => run("python3", ["publishing.py"], { env }));
  });

  test.skipIf(!hasGo)(
    `so does the one in Go, with its protoc${skipped(hasGo, "there is no Go 1.21 or later")}`,
    async () => {
      const cwd = await mkdtemp(path.join(tmpdir(), "webhook-go-"));
      onTestFinished(() => rm(cwd, { recursive: true, force: true }));
      await copyFile(path.join(publishing, "publishing.go"), path.join(cwd, "main.go"));
      const env = { ...GO_ENVIRONMENT, PROTOC: "python3 -m grpc_tools.protoc" };
      await run("sh", ["-eu", path.join(publishing, "go-generate.sh")], { cwd, env });
      await run("go", ["build", "-o", "publisher", "."], { cwd, env });
      await expectPublishing(api, "go", (more) => run(path.join(cwd, "publisher"), [], { cwd, env: more }));
    },
  );
});

test.skipIf(!hasGrpcurl)(
  `the example with grpcurl publishes an event and lists the webhooks${skipped(hasGrpcurl, "there is no grpcurl")}`,
  async () => {
    const printed = await run("sh", ["-eu", path.join(examples, "grpcurl.sh")]);
    await expectCalls(api, printed, "grpcurl-1001");
  },
);

describe("the outbox example", () => {
  test("publishes the others if a row is no event, the service cannot store it, or rows together or alone are more than a call may hold", async () => {
    const { store, startRelay, left, published } = await createOutbox(api, dependent);
    await store.raw(`
      update outbox set event = '{"orderDispatchd": {}}' where id = 1;
      update outbox set event = jsonb_set(event, '{orderDispatched,orderNumber}', to_jsonb(repeat('9', 20000)))
        where id between 2 and 500;
      update outbox set event = jsonb_set(event, '{orderDispatched,lines}',
          (select jsonb_agg('{"productId": "7", "sku": "LAMP-01", "quantity": 1}'::jsonb) from generate_series(1, 100)))
        where id between 501 and 1000;
      update outbox set event = jsonb_set(event, '{orderDispatched,orderNumber}', to_jsonb(repeat('9', 5000000)))
        where id = 1100`);
    const { db } = api.context;
    await db.raw(`
      create function refuse_event() returns trigger language plpgsql as $$ begin raise exception 'no room'; end $$;
      create trigger refuse_event before insert on events for each row
        when (new.idempotency_key = 'outbox-700') execute function refuse_event()`);
    const repair = () => db.raw("drop function if exists refuse_event() cascade").then(() => {});
    onTestFinished(repair);
    startRelay();
    await expect.poll(left).toBe(3);
    const rows = () => store("outbox").orderBy("id");
    const unpublishable = { id: 1n, error: expect.stringContaining("orderDispatchd") };
    const tooLarge = { id: 1_100n, error: "the event is too large" };
    expect(await rows()).toMatchObject([
      unpublishable,
      { id: 700n, error: null, retry_at: expect.any(Date) },
      tooLarge,
    ]);
    await repair();
    await store("outbox").where("id", 700).update({ retry_at: store.fn.now() });
    await expect.poll(left).toBe(2);
    expect(await published()).toHaveLength(1_198);
    expect(await rows()).toMatchObject([unpublishable, tooLarge]);
  });

  test("continues if its connection to the database breaks while it is idle or publishes", async () => {
    const { store, startRelay, left } = await createOutbox(api, dependent);
    const relay = startRelay();
    await expect.poll(left).toBe(0);
    const insert = () =>
      store.raw(
        `insert into outbox (event) select jsonb_build_object('userId', 'tenant-42', 'orderDispatched',
          jsonb_build_object('orderId', '1', 'orderNumber', 'SO-1', 'dispatchedAt', to_json(now())))`,
      );
    /** Ends the relay's session in the given state; returns the number of sessions ended. */
    const breakIn = async (state: string) => {
      const { rows } = await store.raw(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and state = ?`,
        [state],
      );
      return rows.length;
    };
    await expect.poll(() => breakIn("idle")).toBe(1);
    await insert();
    await expect.poll(left).toBe(0);

    // Publishing waits for this lock, in a transaction of the relay.
    const release = await lock(api, "events");
    onTestFinished(release);
    await insert();
    await expect.poll(() => waitingQueries(api)).toBeGreaterThan(0);
    expect(await breakIn("idle in transaction")).toBe(1);
    await release();
    await expect.poll(left).toBe(0);
    expect([relay.exitCode, relay.signalCode]).toEqual([null, null]);
  });

  test("publishes every event if the key has a quota of fewer events than a batch has", async () => {
    const { store, startRelay, left, published } = await createOutbox(api, dependent, 400);
    startRelay();
    await expect.poll(() => store("outbox").whereNotNull("retry_at").first()).toBeDefined();
    await expect.poll(left).toBe(0);
    expect(await published()).toHaveLength(1_200);
  });
});
