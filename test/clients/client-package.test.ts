import { execFile, spawn } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createRouterTransport } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createWebhookClients } from "../../clients/index.ts";
import { openDatabase } from "../../src/db/database.ts";
import { createTestDatabase } from "../support/database.ts";
import { ONLY, startTestApi, type TestApi } from "../support/test-api.ts";
import { loseFirstAnswer } from "./broken-answer.ts";
import { GO_ENVIRONMENT, goMinorVersion, has, pythonFolder } from "./toolchains.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const examples = path.join(root, "clients/examples");
const URL_LISTED = "https://receiver.example/clients";
/** What docs/clients.md tells dependents to install with the package, by its folder here. */
const DOCUMENTED = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];
/** What else the examples need. */
const BESIDE = ["@grpc/grpc-js", "@grpc/proto-loader", "@types/node", "@types/pg", "pg"];

let api: TestApi;
/** The packed files of the package, and of what is installed with it. */
let packed: string;
/** A project that depends on the package, as npm installs it from the packed file. */
let dependent: string;
let environment: NodeJS.ProcessEnv;

/** What the program wrote, when it ended well. */
async function output(program: string, args: string[], cwd = dependent): Promise<string> {
  const { stdout } = await promisify(execFile)(program, args, { cwd, env: environment });
  return stdout;
}

beforeAll(async () => {
  api = await startTestApi();
  await api.rest("POST", "/api/webhook", { json: { process: 1, url: URL_LISTED } });
  environment = {
    ...process.env,
    WEBHOOK_URL: api.url,
    WEBHOOK_GRPC: `127.0.0.1:${api.grpcPort}`,
    WEBHOOK_KEY: api.adminKey,
    PROTO_DIR: `${root}proto`,
    PROTO_DIRS: `node_modules/@webhook-service/client/proto:${root}node_modules/protobufjs`,
  };
  packed = await mkdtemp(path.join(tmpdir(), "webhook-packed-"));
  await output(process.execPath, ["scripts/build-client.ts"], root);
  dependent = await installBeside(DOCUMENTED);
}, 120_000);
afterAll(async () => {
  await api.stop();
  for (const folder of [dependent, packed]) await rm(folder, { recursive: true, force: true });
});

/**
 * Installs the package and others in an empty folder by npm, without the network and without leave to break what a package
 * asks of its peers.
 *
 * @param folders of the others, below node_modules
 */
async function installBeside(folders: readonly string[]): Promise<string> {
  const pack = async (folder: string) => {
    const args = ["pack", "--silent", "--ignore-scripts", "--pack-destination", packed];
    return path.join(packed, (await output("npm", args, path.join(root, folder))).trim());
  };
  const files = await Promise.all(["clients", ...folders.map((each) => `node_modules/${each}`)].map(pack));
  const project = await mkdtemp(path.join(tmpdir(), "webhook-dependent-"));
  await writeFile(path.join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
  await output("npm", ["install", "--offline", "--no-audit", "--no-fund", ...files], project);
  for (const name of BESIDE) {
    const place = path.join(project, "node_modules", name);
    await mkdir(path.dirname(place), { recursive: true });
    await symlink(path.join(root, "node_modules", name), place, "junction");
  }
  return project;
}

/** Has `python3` be one with the packages that the examples need. */
async function usePython(): Promise<void> {
  const folder = await pythonFolder();
  if (!environment.PATH?.startsWith(folder))
    environment.PATH = `${folder}${path.delimiter}${environment.PATH}`;
}

let generated: Promise<string> | undefined;

/** Generates the client in Python, once for all examples. */
function generatePython(): Promise<string> {
  generated ??= output("sh", ["-eu", path.join(examples, "grpcio-generate.sh")]);
  return generated;
}

/** Sees to it that the example published its event, and listed the webhook. */
async function expectCalls(stdout: string, idempotencyKey: string): Promise<void> {
  const event = await api.context.db("events").where("idempotency_key", idempotencyKey).first();
  expect(stdout).toContain(event.id);
  expect(stdout).toContain(URL_LISTED);
}

describe("the client package, installed from what npm packs", () => {
  test("makes calls from plain JavaScript, and tells why one was refused", async () => {
    await writeFile(
      path.join(dependent, "plain.js"),
      `import { ConnectError } from "@connectrpc/connect";
      import { createGrpcTransport } from "@connectrpc/connect-node";
      import { createWebhookClients, reasonOf, withApiKey } from "@webhook-service/client";
      const { webhooks } = createWebhookClients(createGrpcTransport({
        baseUrl: "http://" + process.env.WEBHOOK_GRPC,
        interceptors: [withApiKey(process.env.WEBHOOK_KEY)],
      }));
      const listed = await webhooks.listWebhooks({});
      const refused = await webhooks.deleteWebhook({ webhookId: 4711n }).catch(ConnectError.from);
      console.log(JSON.stringify([listed.webhooks.map(({ url }) => url), reasonOf(refused)]));`,
    );
    expect(JSON.parse(await output(process.execPath, ["plain.js"]))).toEqual([
      [URL_LISTED],
      "WEBHOOK_NOT_FOUND",
    ]);
  });

  test("is installed with the oldest peers that it allows, and works with them", async () => {
    const project = await installBeside(["oldest-protobuf", "oldest-connect"]);
    onTestFinished(() => rm(project, { recursive: true, force: true }));
    await writeFile(
      path.join(project, "oldest.ts"),
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
    const types = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node"];
    await output(path.join(root, "node_modules/.bin/tsc"), [...types, "oldest.ts"], project);
    expect(await output(process.execPath, ["oldest.ts"], project)).toBe(
      "1152921504606846976n 2 https://receiver.example\n",
    );
  });

  test("has all that is needed to read about it and to make other clients of the contract", async () => {
    const folder = path.join(dependent, "node_modules/@webhook-service/client");
    const files = await readdir(folder);
    expect(files.sort()).toEqual(["LICENSE", "NOTICE", "README.md", "dist", "package.json", "proto"]);
    expect(await readdir(path.join(folder, "proto/webhook/v1"))).toEqual(
      await readdir(path.join(root, "proto/webhook/v1")),
    );
  });

  test("has a README.md that names the clients of all services", async () => {
    const readme = await readFile(path.join(root, "clients/README.md"), "utf8");
    const sentence = /^`createWebhookClients` returns .*?\.$/ms.exec(readme)?.[0] ?? "";
    const [, ...named] = [...sentence.matchAll(/`(\w+)`/g)].map(([, name]) => name);
    expect(named).toEqual(Object.keys(createWebhookClients(createRouterTransport(() => {}))));
  });

  test("has declarations that TypeScript reads in full, and that the examples keep to", async () => {
    const right = ["connect.ts", "publishing/publishing.ts", "outbox/outbox.ts"];
    for (const file of right)
      await copyFile(path.join(examples, file), path.join(dependent, path.basename(file)));
    await writeFile(
      path.join(dependent, "wrong.ts"),
      'import { withApiKey } from "@webhook-service/client";\nwithApiKey(1);\n',
    );
    const flags = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node"];
    const files = [...right.map((file) => path.basename(file)), "wrong.ts"];
    // Together, because most of the time goes into reading the declarations.
    const checked = output(path.join(root, "node_modules/.bin/tsc"), [
      ...flags,
      "--pretty",
      "false",
      ...files,
    ]);
    await expect(checked).rejects.toMatchObject({
      stdout: expect.stringMatching(/^wrong\.ts\(2,12\): .*\n$/),
    });
  });
});

const without = (isThere: boolean, what: string) => (isThere ? "" : ` (skipped: ${what})`);
const hasPython = has("python3", "-m", "venv", "-h");
/** Earlier ones do not fetch the version that a module asks for. */
const hasGo = hasPython && goMinorVersion() >= 21;
const hasCurl = has("curl", "--version");
const hasGrpcurl = has("grpcurl", "-version");

describe("the example publishes an event and lists the webhooks", () => {
  test("in TypeScript with Connect", async () => {
    await copyFile(path.join(examples, "connect.ts"), path.join(dependent, "connect.ts"));
    await expectCalls(await output(process.execPath, ["connect.ts"]), "connect-1001");
  });

  test("in Node with grpc-js", async () => {
    await copyFile(path.join(examples, "grpc-js.mjs"), path.join(dependent, "grpc-js.mjs"));
    await expectCalls(await output(process.execPath, ["grpc-js.mjs"]), "grpc-js-1001");
  });

  test.skipIf(!hasPython)(
    `in Python with grpcio${without(hasPython, "there is no python3 with venv")}`,
    async () => {
      await usePython();
      await generatePython();
      await copyFile(path.join(examples, "grpcio.py"), path.join(dependent, "call_webhook_service.py"));
      await expectCalls(await output("python3", ["call_webhook_service.py"]), "grpcio-1001");
    },
  );

  test.skipIf(!hasCurl)(`with curl${without(hasCurl, "there is no curl")}`, async () => {
    await expectCalls(await output("sh", ["-eu", path.join(examples, "curl.sh")]), "curl-1001");
  });

  test.skipIf(!hasGrpcurl)(`with grpcurl${without(hasGrpcurl, "there is no grpcurl")}`, async () => {
    await expectCalls(await output("sh", ["-eu", path.join(examples, "grpcurl.sh")]), "grpcurl-1001");
  });
});

describe("the example publishes one event, a batch and a stream, repeats a lost call, and reads errors", () => {
  /** Runs a program with a key of the permission that the document names, and the first answer lost. */
  async function expectPublishing(language: string, run: () => Promise<string>): Promise<void> {
    const { secret } = await api.key({ permissions: ONLY.publish });
    const proxy = await loseFirstAnswer(api.grpcPort as number);
    onTestFinished(() => proxy.close());
    const before = environment;
    environment = { ...environment, WEBHOOK_KEY: secret, WEBHOOK_GRPC: proxy.address };
    const printed = await run().finally(() => {
      environment = before;
    });
    const stored = await api.context
      .db("events")
      .whereLike("idempotency_key", `${language}-%`)
      .orderBy("idempotency_key");
    expect(stored).toHaveLength(1_002);
    const idOf = (n: number) => stored.find((event) => event.idempotency_key === `${language}-${n}`).id;
    expect(proxy.hasBroken()).toBe(true);
    expect(printed.trim().split("\n")).toEqual([
      `published ${idOf(1)}, duplicate: true`,
      `published ${idOf(2)}`,
      "event 1 refused: FIELDS_INVALID: user_id has a space as character 4; allowed: 1 to 128 visible ASCII characters (no spaces)",
      "streamed 1000 events",
      "FIELDS_INVALID: user_id",
      "IDEMPOTENCY_KEY_REUSED: user_id",
    ]);
  }
  const folder = path.join(examples, "publishing");

  test("in TypeScript", async () => {
    await copyFile(path.join(folder, "publishing.ts"), path.join(dependent, "publishing.ts"));
    await expectPublishing("typescript", () => output(process.execPath, ["publishing.ts"]));
  });

  test.skipIf(!hasPython)(`in Python${without(hasPython, "there is no python3 with venv")}`, async () => {
    await usePython();
    await generatePython();
    await copyFile(path.join(folder, "publishing.py"), path.join(dependent, "publishing.py"));
    await expectPublishing("python", () => output("python3", ["publishing.py"]));
  });

  test.skipIf(!hasGo)(
    `in Go${without(hasGo, "there is no Go 1.21 or later, or no python3 with venv, whose protoc it uses")}`,
    async () => {
      await usePython();
      const project = await mkdtemp(path.join(tmpdir(), "webhook-go-"));
      onTestFinished(() => rm(project, { recursive: true, force: true }));
      await copyFile(path.join(folder, "publishing.go"), path.join(project, "main.go"));
      Object.assign(environment, GO_ENVIRONMENT, { PROTOC: "python3 -m grpc_tools.protoc" });
      await output("sh", ["-eu", path.join(folder, "go-generate.sh")], project);
      await output("go", ["vet", "."], project);
      await output("go", ["build", "-o", "publisher", "."], project);
      await expectPublishing("go", () => output(path.join(project, "publisher"), [], project));
    },
    600_000,
  );
});

describe("the outbox example", () => {
  /** An outbox with 1,200 rows, and relays that publish them with a key of their own until the test ends. */
  async function createOutbox(eventsPerSecond: number | null = null) {
    const quotas = { webhookQuota: null, eventsPerSecond };
    const { id, secret } = await api.key({ permissions: ONLY.publish, quotas });
    const database = await createTestDatabase();
    const store = openDatabase(database.url, { max: 1, applicationName: "outbox" });
    onTestFinished(async () => {
      await store.destroy();
      await database.drop();
    });
    await store.raw(await readFile(path.join(examples, "outbox/outbox.sql"), "utf8"));
    await copyFile(path.join(examples, "outbox/outbox.ts"), path.join(dependent, "outbox.ts"));
    const startRelay = (address = `127.0.0.1:${api.grpcPort}`) => {
      const env = {
        ...environment,
        WEBHOOK_KEY: secret,
        WEBHOOK_GRPC: address,
        OUTBOX_DATABASE_URL: database.url,
      };
      const relay = spawn(process.execPath, ["outbox.ts"], { cwd: dependent, env, stdio: "ignore" });
      onTestFinished(() => void relay.kill("SIGKILL"));
      return relay;
    };
    return {
      store,
      startRelay,
      left: async () => Number((await store("outbox").count())[0]?.count),
      published: () => api.context.db("events").where("api_key_id", id).select("id", "idempotency_key"),
    };
  }

  test("publishes each event once, though an answer is lost and the relay is killed", async () => {
    const { store, startRelay, left, published } = await createOutbox();
    await store.raw(`update outbox set event = event - 'userId' where id = 700`);
    const proxy = await loseFirstAnswer(api.grpcPort as number);
    onTestFinished(() => proxy.close());
    const relay = startRelay(proxy.address);
    await expect.poll(() => proxy.hasBroken()).toBe(true);
    // Its first batch is published, and the transaction that would delete the rows is not committed.
    relay.kill("SIGKILL");
    expect(await left()).toBe(1_200);
    startRelay();
    await expect.poll(left).toBe(1);
    const events = await published();
    expect(events).toHaveLength(1_199);
    const deliveries = await api.context
      .db("queue")
      .whereIn(
        "event_id",
        events.map(({ id }) => id),
      )
      .count();
    expect(Number(deliveries[0]?.count)).toBe(1_199);
    expect(await store("outbox").first()).toMatchObject({
      id: 700n,
      error: "user_id is required and must not be empty",
    });
  });

  test("publishes the others if a row is no event, or together or alone more than a call may hold", async () => {
    const { store, startRelay, left, published } = await createOutbox();
    await store.raw(`
      update outbox set event = '{"orderDispatchd": {}}' where id = 1;
      update outbox set event = jsonb_set(event, '{orderDispatched,orderNumber}', to_jsonb(repeat('9', 20000)))
        where id between 2 and 500;
      update outbox set event = jsonb_set(event, '{orderDispatched,lines}',
          (select jsonb_agg('{"productId": "7", "sku": "LAMP-01", "quantity": 1}'::jsonb) from generate_series(1, 100)))
        where id between 501 and 1000;
      update outbox set event = jsonb_set(event, '{orderDispatched,orderNumber}', to_jsonb(repeat('9', 5000000)))
        where id = 1100`);
    startRelay();
    await expect.poll(left).toBe(2);
    expect(await published()).toHaveLength(1_198);
    expect(await store("outbox").orderBy("id")).toMatchObject([
      { id: 1n, error: expect.stringContaining("orderDispatchd") },
      { id: 1_100n, error: "the event is too large" },
    ]);
  });

  test("continues if its connection to the database breaks while it is idle or publishes", async () => {
    const { store, startRelay, left } = await createOutbox();
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
    const held = await api.context.db.transaction();
    onTestFinished(async () => {
      if (!held.isCompleted()) await held.rollback();
    });
    await held.raw("lock table events in access exclusive mode");
    await insert();
    const waits = async () =>
      (
        await api.context
          .db("pg_stat_activity")
          .whereRaw("datname = current_database()")
          .where({ wait_event_type: "Lock" })
      ).length;
    await expect.poll(waits).toBeGreaterThan(0);
    expect(await breakIn("idle in transaction")).toBe(1);
    await held.rollback();
    await expect.poll(left, { timeout: 20_000 }).toBe(0);
    expect([relay.exitCode, relay.signalCode]).toEqual([null, null]);
  });

  test("publishes every event if the key has a quota of fewer events than a batch has", async () => {
    const { store, startRelay, left, published } = await createOutbox(400);
    startRelay();
    await expect.poll(() => store("outbox").whereNotNull("retry_at").first()).toBeDefined();
    await expect.poll(left, { timeout: 40_000 }).toBe(0);
    expect(await published()).toHaveLength(1_200);
  });

  test("publishes an event that the service could not store once it can, and the others meanwhile", async () => {
    const { store, startRelay, left, published } = await createOutbox();
    const { db } = api.context;
    await db.raw(`
      create function refuse_event() returns trigger language plpgsql as $$ begin raise exception 'no room'; end $$;
      create trigger refuse_event before insert on events for each row
        when (new.idempotency_key = 'outbox-700') execute function refuse_event()`);
    const repair = () => db.raw("drop function if exists refuse_event() cascade");
    onTestFinished(() => repair().then(() => {}));
    startRelay();
    await expect.poll(left).toBe(1);
    const [row] = await store("outbox");
    expect(row).toMatchObject({ id: 700n, error: null, retry_at: expect.any(Date) });
    expect(row.retry_at.getTime()).toBeGreaterThan(Date.now());
    await repair();
    await store("outbox").update({ retry_at: new Date() });
    await expect.poll(left).toBe(0);
    expect(await published()).toHaveLength(1_200);
  });
});
