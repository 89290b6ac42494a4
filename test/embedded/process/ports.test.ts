import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { expect, onTestFinished, test } from "vitest";
import { isPortFree } from "../../../src/embedded/process/ports.ts";

const own = Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address));

test.each(["127.0.0.1", "0.0.0.0", ...(own.includes("::1") ? ["::1", "::"] : [])])(
  "a port on which another program listens on %s is not free, and is free afterwards",
  async (address) => {
    const server = createServer().listen(0, address);
    onTestFinished(() => void server.close());
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    expect(await isPortFree(port)).toBe(false);
    server.close();
    await once(server, "close");
    expect(await isPortFree(port)).toBe(true);
  },
);
