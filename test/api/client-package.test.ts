import { execFile, spawnSync } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestApi, type TestApi } from "../support/test-api.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const examples = path.join(root, "clients/examples");
const URL_LISTED = "https://receiver.example/clients";
/** What dependents have beside the package: its peers, a transport, and a client of another make. */
const BESIDE = [
  "@bufbuild/protobuf",
  "@connectrpc/connect",
  "@connectrpc/connect-node",
  "@grpc/grpc-js",
  "@grpc/proto-loader",
  "@types/node",
];

let api: TestApi;
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
  dependent = await mkdtemp(path.join(tmpdir(), "webhook-dependent-"));
  await output(process.execPath, ["scripts/build-client.ts"], root);
  await output("npm", ["pack", "--silent", "--pack-destination", dependent], path.join(root, "clients"));
  const [packed] = (await readdir(dependent)).filter((name) => name.endsWith(".tgz"));
  const dependencies = { "@webhook-service/client": `file:${packed}` };
  await writeFile(
    path.join(dependent, "package.json"),
    JSON.stringify({ private: true, type: "module", dependencies }),
  );
  // Without the network: the peers are put beside it afterwards, from what is installed here.
  await output("npm", ["install", "--offline", "--legacy-peer-deps", "--no-audit", "--no-fund"]);
  for (const name of BESIDE) {
    const place = path.join(dependent, "node_modules", name);
    await mkdir(path.dirname(place), { recursive: true });
    await symlink(path.join(root, "node_modules", name), place, "junction");
  }
}, 120_000);
afterAll(async () => {
  await api.stop();
  await rm(dependent, { recursive: true, force: true });
});

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

  test("has all that is needed to read about it and to make other clients of the contract", async () => {
    const folder = path.join(dependent, "node_modules/@webhook-service/client");
    const files = await readdir(folder);
    expect(files.sort()).toEqual(["LICENSE", "NOTICE", "README.md", "dist", "package.json", "proto"]);
    expect(await readdir(path.join(folder, "proto/webhook/v1"))).toEqual(
      await readdir(path.join(root, "proto/webhook/v1")),
    );
  });

  test("has declarations that TypeScript reads in full", async () => {
    await copyFile(path.join(examples, "connect.ts"), path.join(dependent, "connect.ts"));
    const flags = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node"];
    await output(path.join(root, "node_modules/.bin/tsc"), [...flags, "connect.ts"]);
    await writeFile(
      path.join(dependent, "wrong.ts"),
      'import { withApiKey } from "@webhook-service/client";\nwithApiKey(1);\n',
    );
    const wrong = output(path.join(root, "node_modules/.bin/tsc"), [...flags, "wrong.ts"]);
    await expect(wrong).rejects.toMatchObject({ stdout: expect.stringContaining("wrong.ts(2,12)") });
  });
});

function succeeds(program: string, ...args: string[]): boolean {
  return spawnSync(program, args, { stdio: "ignore" }).status === 0;
}
const without = (has: boolean, what: string) => (has ? "" : ` (skipped: ${what})`);
const hasPython = succeeds("python3", "-c", "import grpc, grpc_tools, google.api.http_pb2");
const hasCurl = succeeds("curl", "--version");
const hasGrpcurl = succeeds("grpcurl", "-version");

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
    `in Python with grpcio${without(hasPython, "this python3 lacks grpcio, grpcio-tools or googleapis-common-protos")}`,
    async () => {
      await output("sh", ["-eu", path.join(examples, "grpcio-generate.sh")]);
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
