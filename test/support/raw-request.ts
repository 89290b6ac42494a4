import { createConnection } from "node:net";

/** Sends bytes as they are to a local port and answers everything that came back until the end of the connection. */
export function sendRaw(port: number, bytes: string | Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: "127.0.0.1", port }, () => socket.write(bytes));
    let received = "";
    socket.setEncoding("utf8");
    socket.on("data", (chunk: string) => {
      received += chunk;
    });
    socket.on("close", () => resolve(received));
    socket.on("error", reject);
  });
}

/** The status and the body of a raw HTTP answer. */
export function parseRaw(answer: string): { status: number; head: string; body: string } {
  const [head = "", ...rest] = answer.split("\r\n\r\n");
  return { status: Number(head.split(" ")[1]), head, body: rest.join("\r\n\r\n") };
}
