import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Transform } from "node:stream";
import { setTimeout as wait } from "node:timers/promises";

/** What a gateway does with connections. */
export type GatewayMode =
  /** Passes everything on. */
  | "pass"
  /** Does not listen: connections are refused. */
  | "refuse"
  /** Ends each connection without a word. */
  | "hang up"
  /** Answers as PostgreSQL does while it starts. */
  | "starting";

/** Stands between the service and its PostgreSQL. */
export interface DatabaseGateway {
  /** The database's address by way of the gateway. */
  url: string;
  /** Ends every connection and treats the next ones so. */
  set(mode: GatewayMode): Promise<void>;
  /** Ends every connection and passes the next ones on to the database at another address. */
  leadTo(url: string): Promise<void>;
  /** Passes new connections on to the database at another address, and keeps the open ones as they are. */
  leadNewTo(url: string): void;
  /** Accepts connections and keeps the old ones, but forwards nothing in either direction, not even their ends. */
  hang(): void;
  /** Forwards what has arrived since `hang`, and everything from now on. */
  resume(): void;
  /** Delays each packet in each direction by so many milliseconds. Defaults to 0. */
  delay(ms: number): void;
  close(): Promise<void>;
}

/** Starts a gateway to the PostgreSQL at `url`; it passes everything on at first. */
export async function startDatabaseGateway(url: string): Promise<DatabaseGateway> {
  let target = new URL(url);
  const open = new Set<Socket>();
  let mode: GatewayMode = "pass";
  let delayMs = 0;
  /** Resolves when packets may pass; at once unless the gateway hangs. */
  let passing = Promise.withResolvers<void>();
  passing.resolve();
  let isHanging = false;
  const track = (socket: Socket) => {
    open.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => open.delete(socket));
  };
  /** Passes packets on in order, each `delayMs` after it came. */
  const forward = () => {
    let last: Promise<unknown> = Promise.resolve();
    let waiting = 0;
    const later = (work: () => void) => {
      if (delayMs === 0 && !isHanging && waiting === 0) return work();
      waiting += 1;
      const delayed = wait(delayMs, undefined, { ref: false });
      last = Promise.all([last, delayed])
        .then(() => passing.promise)
        .then(() => {
          waiting -= 1;
          work();
        });
    };
    return new Transform({
      transform(packet, _encoding, done) {
        later(() => this.push(packet));
        done();
      },
      flush: (done) => later(done),
    });
  };
  const server = createServer((caller) => {
    track(caller);
    if (mode === "hang up") return void caller.destroy();
    if (mode === "starting") return void caller.once("data", () => caller.end(STARTING));
    const database = connect(Number(target.port), target.hostname);
    track(database);
    const [toDatabase, toCaller] = [forward(), forward()];
    caller.pipe(toDatabase).pipe(database);
    database.pipe(toCaller).pipe(caller);
    // An end comes after what was sent before it, and one by a reset too.
    caller.once("close", () => toDatabase.end());
    database.once("close", () => toCaller.end());
  });
  const listen = async (port: number) => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const end = async () => {
    const closed = server.listening ? once(server, "close") : undefined;
    server.close();
    for (const socket of open) socket.destroy();
    await closed;
  };
  const through = new URL(url);
  through.hostname = "127.0.0.1";
  through.port = String(port);
  const set = async (next: GatewayMode) => {
    await end();
    mode = next;
    if (next !== "refuse") await listen(port);
  };
  return {
    url: through.href,
    set,
    async leadTo(next) {
      target = new URL(next);
      await set("pass");
    },
    leadNewTo(next) {
      target = new URL(next);
    },
    hang() {
      passing = Promise.withResolvers();
      isHanging = true;
    },
    resume() {
      passing.resolve();
      isHanging = false;
    },
    delay(ms) {
      delayMs = ms;
    },
    async close() {
      passing.resolve();
      await end();
    },
  };
}

const FIELDS = "SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
/** PostgreSQL's ErrorResponse, byte for byte. */
const STARTING = Buffer.concat([
  Buffer.from("E"),
  Buffer.from([0, 0, 0, FIELDS.length + 4]),
  Buffer.from(FIELDS),
]);
