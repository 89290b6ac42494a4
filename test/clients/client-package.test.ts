import { readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { createRouterTransport } from "@connectrpc/connect";
import { afterAll, expect, test } from "vitest";
import { createWebhookClients } from "../../clients/index.ts";
import { useApi } from "../support/test-api.ts";
import { loseFirstAnswer } from "./broken-answer.ts";
import { createDependent, expectCalls, expectPublishing, root, STRICT, tsc } from "./dependent.ts";
import { createOutbox } from "./outbox.ts";
import { has } from "./toolchains.ts";

const api = await useApi();
const dependent = await createDependent(api);
const { folder, run, copy } = dependent;
afterAll(() => dependent.remove());

test("the client package, as npm packs it, has all that is needed to read about it and to make other clients of the contract", async () => {
  const packed = path.join(folder, "node_modules/@webhook-service/client");
  const files = await readdir(packed);
  expect(files.sort()).toEqual(["LICENSE", "NOTICE", "README.md", "dist", "package.json", "proto"]);
  const protos = "proto/webhook/v1";
  expect(await readdir(path.join(packed, protos))).toEqual(await readdir(path.join(root, protos)));
});

test("the client package, as npm packs it, has a README.md that names the clients of all services", async () => {
  const readme = await readFile(path.join(root, "clients/README.md"), "utf8");
  const sentence = /^`createWebhookClients` returns .*?\.$/ms.exec(readme)?.[0] ?? "";
  const [, ...named] = [...sentence.matchAll(/`(\w+)`/g)].map(([, name]) => name);
  expect(named).toEqual(Object.keys(createWebhookClients(createRouterTransport(() => {}))));
});

test("the client package, as npm packs it, has declarations that TypeScript reads in full, and that the examples keep to", async () => {
  const right = ["connect.ts", "publishing/publishing.ts", "outbox/outbox.ts"];
  for (const file of right) await copy(file);
  const wrong = 'import { withApiKey } from "@webhook-service/client";\nwithApiKey(1);\n';
  await writeFile(path.join(folder, "wrong.ts"), wrong);
  // Together, because most of the time goes into reading the declarations.
  const files = [...right.map((file) => path.basename(file)), "wrong.ts"];
  await expect(run(tsc, [...STRICT, "--pretty", "false", ...files])).rejects.toMatchObject({
    stdout: expect.stringMatching(/^wrong\.ts\(2,12\): .*\n$/),
  });
});
const hasCurl = has("curl", "--version");

test.for([
  { how: "in TypeScript with Connect", program: process.execPath, args: ["connect.ts"], key: "connect-1001" },
  { how: "in Node with grpc-js", program: process.execPath, args: ["grpc-js.mjs"], key: "grpc-js-1001" },
  {
    how: hasCurl ? "with curl" : "with curl (skipped: there is no curl)",
    program: "sh",
    args: ["-eu", "curl.sh"],
    key: "curl-1001",
    isMissing: !hasCurl,
  },
])(
  "the example $how publishes an event and lists the webhooks",
  async ({ program, args, key, isMissing }, { skip }) => {
    skip(isMissing === true);
    await copy(args.at(-1) as string);
    await expectCalls(api, await run(program, args), key);
  },
);

test("the example in TypeScript publishes one event, a batch and a stream, repeats a lost call, and reads errors", async () => {
  await copy("publishing/publishing.ts");
  await expectPublishing(api, "typescript", (env) => run(process.execPath, ["publishing.ts"], { env }));
});

test("the outbox example publishes each event once, though an answer is lost and the relay is killed", async () => {
  const { store, startRelay, left, published } = await createOutbox(api, dependent);
  await store.raw("update outbox set event = event - 'userId' where id = 700");
  const proxy = await loseFirstAnswer(api.grpcPort as number);
  const relay = startRelay(proxy.address);
  await expect.poll(() => proxy.hasBroken()).toBe(true);
  // Its first batch is published, and the transaction that would delete the rows is not committed.
  relay.kill("SIGKILL");
  expect(await left()).toBe(1_200);
  startRelay();
  await expect.poll(left).toBe(1);
  const events = await published();
  expect(events).toHaveLength(1_199);
  const eventIds = events.map(({ id }) => id);
  expect(await api.context.db("queue").whereIn("event_id", eventIds).pluck("id")).toHaveLength(1_199);
  const error = "user_id is required and must not be empty";
  expect(await store("outbox").first()).toMatchObject({ id: 700n, error });
});
