import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect } from "vitest";
import { ONLY, type TestApi } from "../support/test-api.ts";
import { loseFirstAnswer } from "./broken-answer.ts";

export const root = fileURLToPath(new URL("../..", import.meta.url));
export const examples = path.join(root, "clients/examples");
/** What docs/clients.md tells dependents to install with the package. */
const DOCUMENTED = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];
/** What else the examples need. */
const BESIDE = ["@grpc/grpc-js", "@grpc/proto-loader", "@types/node", "@types/pg", "pg"];
/** The options by which the examples and the declarations are checked. */
export const STRICT = "--noEmit --strict --module nodenext --target es2022 --types node".split(" ");
export const tsc = path.join(root, "node_modules/.bin/tsc");
const URL_LISTED = "https://receiver.example/clients";

/** A project that depends on the client package. */
export type Dependent = Awaited<ReturnType<typeof createDependent>>;

const run = async (program: string, args: string[], options: { cwd: string; env?: NodeJS.ProcessEnv }) =>
  (await promisify(execFile)(program, args, options)).stdout;

/**
 * Builds and packs the client package and puts it into a project of its own: as files, with what it depends on linked; or, if
 * folders below node_modules are given, as npm installs it with their packages, without the network and without leave to break
 * what a package asks of its peers.
 */
export async function createDependent(api: TestApi, installed?: readonly string[]) {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-dependent-"));
  await run(process.execPath, ["scripts/build-client.ts"], { cwd: root });
  const pack = async (each: string) => {
    const args = ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder];
    return path.join(folder, (await run("npm", args, { cwd: path.join(root, each) })).trim());
  };
  const packed = await pack("clients");
  await writeFile(path.join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  if (installed) {
    const others = await Promise.all(installed.map((each) => pack(`node_modules/${each}`)));
    const args = ["install", "--offline", "--no-audit", "--no-fund", packed, ...others];
    await run("npm", args, { cwd: folder });
  } else {
    const place = path.join(folder, "node_modules/@webhook-service/client");
    await mkdir(place, { recursive: true });
    await run("tar", ["-xzf", packed, "--strip-components=1", "-C", place], { cwd: folder });
  }
  for (const name of installed ? BESIDE : [...DOCUMENTED, ...BESIDE]) {
    const place = path.join(folder, "node_modules", name);
    await mkdir(path.dirname(place), { recursive: true });
    await symlink(path.join(root, "node_modules", name), place, "junction");
  }
  await api.rest("POST", "/api/webhook", { json: { process: 1, url: URL_LISTED } });
  const environment: NodeJS.ProcessEnv = {
    ...process.env,
    WEBHOOK_URL: api.url,
    WEBHOOK_GRPC: `127.0.0.1:${api.grpcPort}`,
    WEBHOOK_KEY: api.adminKey,
    PROTO_DIR: `${root}proto`,
    PROTO_DIRS: `node_modules/@webhook-service/client/proto:${root}node_modules/protobufjs`,
  };
  return {
    folder,
    /** What its programs are told of the service. */
    environment,
    /** Runs a program in the project. Answers what it printed, when it ended well. */
    run: (
      program: string,
      args: string[],
      { cwd = folder, env = {} }: { cwd?: string; env?: NodeJS.ProcessEnv } = {},
    ) => run(program, args, { cwd, env: { ...environment, ...env } }),
    /** Copies an example to the project, under its own name or another. */
    copy: (example: string, name = path.basename(example)) =>
      copyFile(path.join(examples, example), path.join(folder, name)),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Fails unless an example published its event, and listed the webhook. */
export async function expectCalls(api: TestApi, printed: string, idempotencyKey: string): Promise<void> {
  const event = await api.context.db("events").where("idempotency_key", idempotencyKey).first();
  expect(printed).toContain(event.id);
  expect(printed).toContain(URL_LISTED);
}

/** Runs a publishing example with a key of the permission that the document names, and the first answer lost. */
export async function expectPublishing(
  api: TestApi,
  language: string,
  runExample: (env: NodeJS.ProcessEnv) => Promise<string>,
): Promise<void> {
  const { secret } = await api.key({ permissions: ONLY.publish });
  const proxy = await loseFirstAnswer(api.grpcPort as number);
  const printed = await runExample({ WEBHOOK_KEY: secret, WEBHOOK_GRPC: proxy.address });
  const stored = await api.context.db("events").whereLike("idempotency_key", `${language}-%`);
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
