import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { startService } from "../../../src/app/service.ts";
import { readConfig } from "../../../src/config/config.ts";
import {
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from "../../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../../src/lib/dev-servers/postgres/postgres-home.ts";
import { isGivenUp, onBehalfOf } from "../../../src/lib/pg/call-signal.ts";
import { type Db, openDatabase, rows } from "../../../src/lib/pg/database.ts";
import { anyPort } from "../../support/any-port.ts";
import { orderEvent } from "../../support/grpc-calls.ts";
import { holdTime } from "../../support/held-time.ts";
import { keyedTransport } from "../../support/test-service.ts";
import { until } from "../../support/wait.ts";

/** How long the server has to act on a CancelRequest, in milliseconds. */
const CANCEL_TIMEOUT_MS = 5_000;
const ADMIN_KEY = "whk_an-administrators-key-for-tests-only";

let folder: string;
let postgres: EmbeddedPostgres;
let admin: Db;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "webhook-test-cancel-"));
  // PostgreSQL may run as another user, who makes its socket here.
  await chmod(folder, 0o777);
  postgres = await startEmbeddedPostgres({
    dataDir: path.join(folder, "data"),
    progress: () => {},
    port: await anyPort(),
    settings: { unix_socket_directories: folder },
  });
  admin = openDatabase(postgres.superuserUrl, { max: 2 });
  await speakTls();
});
afterAll(async () => {
  await admin.destroy();
  await postgres.stop();
  await removeDataDir(path.join(folder, "data"));
  await rm(folder, { recursive: true, force: true });
});

/** Makes the server speak TLS with a certificate of an authority whose PEM file is in the folder. */
async function speakTls(): Promise<void> {
  const authority = await createLocalAuthority();
  const { cert, key } = await authority.issue(["localhost", "127.0.0.1"]);
  await writeFile(path.join(folder, "authority.pem"), authority.cert);
  for (const [name, pem] of Object.entries({ "server.crt": cert, "server.key": key })) {
    // The server writes the files itself: it takes a key from nobody else. Its programs start in its data folder.
    const lines = pem.trim().split("\n");
    await admin.raw(
      `copy (select unnest(array[${lines.map((line) => `'${line.trim()}'`).join(",")}])) to program 'cat > ${name} && chmod 600 ${name}'`,
    );
  }
  await admin.raw("alter system set ssl = on");
  await admin.raw("select pg_reload_conf()");
  await until(async () => (await rows<{ ssl: string }>(admin, "show ssl"))[0]?.ssl === "on");
}

/** Opens a pool for the test. */
function pool(url: string): Db {
  const db = openDatabase(url, { max: 5, applicationName: "cancelled-by-test" });
  onTestFinished(() => db.destroy());
  return db;
}

/** Runs a statement for a call that can be given up. */
function startCall(db: Db, sql: string) {
  const call = new AbortController();
  const ended = onBehalfOf(call.signal, () => rows(db, sql)).then(
    () => "completed",
    (error: unknown) => (isGivenUp(error) ? "cancelled" : error),
  );
  return { giveUp: () => call.abort(), ended };
}

/** Statements that the server runs for the test's pools. */
const running = async () =>
  (await admin("pg_stat_activity").where({ application_name: "cancelled-by-test", state: "active" })).length;

const through = {
  TCP: () => postgres.url,
  TLS: () => `${postgres.url}?sslmode=verify-full&sslrootcert=${folder}/authority.pem`,
  "TLS from the first byte": () =>
    `${postgres.url}?sslmode=verify-full&sslnegotiation=direct&sslrootcert=${folder}/authority.pem`,
  "a Unix socket": () => postgres.url.replace("@127.0.0.1", `@${encodeURIComponent(folder)}`),
};

describe.each(Object.entries(through))("over %s", (way, url) => {
  test("the statement of a call that is given up is cancelled, and no other", async () => {
    const db = pool(url());
    const [used] = await rows<{ tls: boolean; tcp: boolean }>(
      db,
      "select ssl as tls, inet_client_addr() is not null as tcp from pg_stat_ssl where pid = pg_backend_pid()",
    );
    expect(used).toEqual({ tls: way.startsWith("TLS"), tcp: way !== "a Unix socket" });
    const lock = await admin.transaction();
    await lock.raw("select pg_advisory_xact_lock(1)");
    const calls = Array.from({ length: 4 }, () => startCall(db, "select pg_advisory_xact_lock_shared(1)"));
    await expect.poll(running).toBe(4);
    calls[0]?.giveUp();
    expect(await calls[0]?.ended).toBe("cancelled");
    await lock.rollback();
    const ends = await Promise.all(calls.map(({ ended }) => ended));
    expect(ends).toEqual(["cancelled", ...Array(3).fill("completed")]);
  });
});

describe("a service whose DATABASE_URL asks for TLS", () => {
  const settings = (url: string) =>
    readConfig({
      ROLE: "api",
      HOST: "127.0.0.1",
      HTTP_PORT: "0",
      GRPC_PORT: "0",
      LOG_LEVEL: "silent",
      DATABASE_URL: url,
      SECRET_KEY: Buffer.alloc(32, 1).toString("base64"),
      ADMIN_KEY: ADMIN_KEY,
    });

  test("has no connection without it, and serves", async () => {
    const service = await startService(settings(through.TLS()), { environment: {} });
    onTestFinished(() => service.stop());
    const events = createClient(EventService, keyedTransport(service.grpcPort as number, ADMIN_KEY));
    await events.publishEvent(orderEvent());
    const { rows: found } = await admin.raw(
      `select distinct ssl as tls from pg_stat_ssl join pg_stat_activity using (pid)
        where application_name like 'webhook-service%' and usename <> current_user`,
    );
    expect(found).toEqual([{ tls: true }]);
  });

  test("does not start when the server's certificate is of another authority, and says so", async () => {
    const other = path.join(folder, "other.pem");
    await writeFile(other, (await createLocalAuthority()).cert);
    const url = `${postgres.url}?sslmode=verify-full&sslrootcert=${other}`;
    await expect(startService(settings(url), { environment: {} })).rejects.toThrow(/certificate/);
  });
});

/** Forwards connections to the server, except the n-th, which it holds back. */
async function startGateway(heldBack: number) {
  const sockets: Socket[] = [];
  let [callers, held] = [0, 0];
  const server = createServer((caller) => {
    callers += 1;
    sockets.push(caller.on("error", () => {}));
    if (callers === heldBack) {
      held += 1;
      return;
    }
    const target = connect(postgres.port, "127.0.0.1").on("error", () => {});
    sockets.push(target);
    caller.pipe(target).pipe(caller);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const url = new URL(postgres.url);
  url.port = String((server.address() as AddressInfo).port);
  return { url: url.href, held: () => held };
}

test("a connection that a late cancellation could still hit is closed instead of used again", async () => {
  const { url, held } = await startGateway(2);
  const db = pool(url);
  const [before] = await rows<{ pid: number }>(db, "select pg_backend_pid() as pid");
  const { pass, goOn } = holdTime();
  const lock = await admin.transaction();
  await lock.raw("select pg_advisory_xact_lock(1)");
  const call = startCall(db, "select pg_advisory_xact_lock_shared(1)");
  await expect.poll(running).toBe(1);
  call.giveUp();
  await expect.poll(held).toBe(1);
  // It ends by itself, while the request has not come to the server.
  await lock.rollback();
  await expect.poll(running).toBe(0);
  pass(CANCEL_TIMEOUT_MS);
  goOn();
  expect(await call.ended).toBe("completed");
  expect(held()).toBe(1);
  const [after] = await rows<{ pid: number }>(db, "select pg_backend_pid() as pid");
  expect(after?.pid).not.toBe(before?.pid);
});
