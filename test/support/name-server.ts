import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import {
  type Answer,
  decode,
  encode,
  type Packet,
  RECURSION_AVAILABLE,
  streamEncode,
  TRUNCATED_RESPONSE,
} from "dns-packet";

/** One question as it came. */
export interface Question {
  name: string;
  type: "A" | "AAAA";
  over: "udp" | "tcp";
}

/** The answer to a question; without addresses and code an empty one. */
export interface Reply {
  addresses?: string[];
  /** The name that the name is an alias of, and that has the addresses. */
  alias?: string;
  /** In seconds; 60 unless given. */
  ttl?: number;
  code?: keyof typeof CODES;
  /** Over UDP the client is only told to ask again over TCP. */
  truncated?: boolean;
}

/** Answers a question, or never if undefined. */
export type Behaviour = (question: Question) => Reply | undefined | Promise<Reply | undefined>;

/** A name server of a test's own, over UDP and TCP on one port of this machine. */
export interface NameServer {
  /** `127.0.0.1:port`. */
  address: string;
  port: number;
  questions: Question[];
  /** The questions for a name. */
  for(name: string): Question[];
  close(): Promise<void>;
}

const CODES = { FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 };

/** Starts a name server that behaves as told, on a free port of 127.0.0.1 unless another place is given. */
export async function startNameServer(
  behaviour: Behaviour,
  place: { host?: string; port?: number } = {},
): Promise<NameServer> {
  const questions: Question[] = [];
  const sockets = new Set<Socket>();

  async function answer(query: Packet, over: Question["over"]): Promise<Packet | undefined> {
    const [asked] = query.questions ?? [];
    if (asked?.type !== "A" && asked?.type !== "AAAA") return undefined;
    const question: Question = { name: asked.name, type: asked.type, over };
    questions.push(question);
    const reply = await behaviour(question);
    return reply && responseTo(query, question, reply);
  }

  const { host = "127.0.0.1" } = place;
  const { udp, tcp } = await listen(host, place.port);
  const { port } = tcp.address() as AddressInfo;
  udp.on("message", async (message, from) => {
    const response = await answer(decode(message), "udp");
    // Whoever asked may have closed its port, and the test this one.
    if (response) udp.send(encode(response), from.port, from.address, () => {});
  });
  tcp.on("connection", (socket) => {
    sockets.add(socket.on("error", () => {}).on("close", () => sockets.delete(socket)));
    let received = Buffer.alloc(0);
    socket.on("data", async (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE()) {
        const length = 2 + received.readUInt16BE();
        const query = decode(received.subarray(2, length));
        received = received.subarray(length);
        const response = await answer(query, "tcp");
        if (response) socket.write(streamEncode(response));
      }
    });
  });

  return {
    address: `${host}:${port}`,
    port,
    questions,
    for: (name) => questions.filter((question) => question.name === name),
    async close() {
      for (const socket of sockets) socket.destroy();
      await Promise.all([new Promise<void>((end) => udp.close(end)), new Promise((end) => tcp.close(end))]);
    },
  };
}

function responseTo(query: Packet, { name, type, over }: Question, reply: Reply): Packet {
  const { addresses = [], alias, ttl = 60, code, truncated } = reply;
  const cut = truncated === true && over === "udp";
  const ofType = addresses.filter((address) => address.includes(":") === (type === "AAAA"));
  const aliases: Answer[] = alias === undefined ? [] : [{ type: "CNAME", name, ttl, data: alias }];
  const records: Answer[] = ofType.map((data) => ({ type, name: alias ?? name, ttl, data }));
  const answers = cut ? [] : [...aliases, ...records];
  const flags = RECURSION_AVAILABLE | (code ? CODES[code] : 0) | (cut ? TRUNCATED_RESPONSE : 0);
  return { type: "response", id: query.id ?? 0, flags, questions: query.questions ?? [], answers };
}

/** The port that UDP gets may be taken for TCP: then another one, unless it is given. */
async function listen(host: string, given = 0): Promise<{ udp: UdpSocket; tcp: Server }> {
  for (;;) {
    const udp = createSocket("udp4");
    udp.bind(given, host);
    await once(udp, "listening");
    const tcp = createServer().listen(udp.address().port, host);
    try {
      await once(tcp, "listening");
      return { udp, tcp };
    } catch (error) {
      udp.close();
      if (given !== 0) throw error;
    }
  }
}
