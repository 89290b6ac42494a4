import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, connect as connectTo, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../../src/lib/pg/connect.ts";
import { type Db, openDatabase, rows } from "../../../src/lib/pg/database.ts";
import { databaseErrorClass, isReadOnlyFault } from "../../../src/lib/pg/faults.ts";
import { createTestDatabase } from "../../support/database.ts";

const { url, drop } = await createTestDatabase();
const { username, password, port, pathname } = new URL(url);
let db: Db;
beforeAll(() => {
  db = openDatabase(url, { max: 1 });
});
afterAll(async () => {
  await db.destroy();
  await drop();
});

/** Listens until the test ends, and counts connections. */
async function listen(
  at: string | number,
  onConnection: (socket: Socket) => void,
): Promise<{ server: Server; port: number; connections: () => number }> {
  let count = 0;
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    count += 1;
    open.add(socket);
    socket.on("error", () => {});
    onConnection(socket);
  });
  if (typeof at === "string") server.listen(at);
  else server.listen(at, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  const address = server.address();
  return { server, port: (address as AddressInfo).port, connections: () => count };
}

const toPostgres = (socket: Socket) => {
  const database = connectTo(Number(port), "127.0.0.1");
  database.on("error", () => {});
  socket.pipe(database).pipe(socket);
};

/** The URL of these hosts, with the test's database. */
const through = (hosts: string, query = "") =>
  `postgres://${username}:${password}@${hosts}${pathname}?${query}`;

/** Connects and ends; returns the port that was reached. */
async function reach(to: string): Promise<number | undefined> {
  const { client } = await connect(to, { query_timeout: 60_000 });
  const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
  const { remotePort } = stream;
  await client.end();
  return remotePort;
}

/** A port at which nobody listens. */
async function closedPort(): Promise<number> {
  const { server, port: closed } = await listen(0, () => {});
  server.close();
  await once(server, "close");
  return closed;
}

describe("of several hosts", () => {
  test("the first that responds is used, in the order of the URL", async () => {
    const [first, second] = [await listen(0, toPostgres), await listen(0, toPostgres)];
    const hosts = `127.0.0.1:${await closedPort()},127.0.0.1:${first.port},127.0.0.1:${second.port}`;
    expect(await reach(through(hosts))).toBe(first.port);
    expect(second.connections()).toBe(0);
    first.server.close();
    expect(await reach(through(hosts))).toBe(second.port);
  });

  test("one that accepts connections and says nothing is tried last from then on", async () => {
    const silent = await listen(0, () => {});
    const hosts = through(`127.0.0.1:${silent.port},127.0.0.1:${port}`);
    for (let n = 0; n < 3; n += 1) expect(await reach(hosts)).toBe(Number(port));
    expect(silent.connections()).toBe(1);
  });

  test("none is tried after one that refuses the login", async () => {
    const second = await listen(0, toPostgres);
    const wrong = through(`127.0.0.1:${port},127.0.0.1:${second.port}`).replace(password, "wrong");
    await expect(reach(wrong)).rejects.toMatchObject({ code: "28P01" });
    expect(second.connections()).toBe(0);
  });

  test("all are used with load_balance_hosts=random", async () => {
    const [first, second] = [await listen(0, toPostgres), await listen(0, toPostgres)];
    const hosts = through(`127.0.0.1:${first.port},127.0.0.1:${second.port}`, "load_balance_hosts=random");
    const reached = new Set<number | undefined>();
    await expect.poll(async () => reached.add(await reach(hosts)).size).toBe(2);
  });

  test("a pool gets its connections and cancels its statements at the host that responds", async () => {
    const pool = openDatabase(through(`127.0.0.1:${await closedPort()},127.0.0.1:${port}`), { max: 2 });
    onTestFinished(() => pool.destroy());
    expect(await rows(pool, "select 1 as one")).toEqual([{ one: 1 }]);
  });
});

test("a host that is the folder of a socket", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-socket-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const socket = await listen(path.join(folder, ".s.PGSQL.5499"), toPostgres);
  const pool = openDatabase(through("", `host=${folder}&port=5499&sslmode=require`), { max: 1 });
  onTestFinished(() => pool.destroy());
  expect(await rows(pool, "select 1 as one")).toEqual([{ one: 1 }]);
  expect(socket.connections()).toBe(1);
});

test("target_session_attrs=read-write finds no host while the database is read-only, and one afterwards", async () => {
  const hosts = through(`127.0.0.1:${port},localhost:${port}`, "target_session_attrs=read-write");
  const name = pathname.slice(1);
  await db.raw(`alter database ${name} set default_transaction_read_only = on`);
  const error = await reach(hosts).then(
    () => expect.unreachable("a session was taken"),
    (failure: unknown) => failure,
  );
  expect(String(error)).toMatch(
    new RegExp(`127.0.0.1:${port}: .* is read-only; localhost:${port}: .* is read-only`),
  );
  expect([databaseErrorClass(error), isReadOnlyFault(error)]).toEqual(["unavailable", true]);
  await db.raw(`begin read write; alter database ${name} set default_transaction_read_only = off; commit`);
  expect(await reach(hosts)).toBe(Number(port));
});
