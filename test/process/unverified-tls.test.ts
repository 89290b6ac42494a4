import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { startArguments } from "../support/service-process.ts";

await Promise.all([part("workflows"), part("page")]);

/** The log lines of a service until it is ready. */
async function startLog(environment: Record<string, string>): Promise<string[]> {
  const database = await createTestDatabase();
  const child = spawn(process.execPath, [...startArguments(), "src/main.ts"], {
    env: {
      ...process.env,
      ROLE: "api",
      HOST: "127.0.0.1",
      HTTP_PORT: "0",
      GRPC_PORT: "0",
      DATABASE_URL: database.url,
      SECRET_KEY: randomBytes(32).toString("base64"),
      LOG_LEVEL: "warn",
      ...environment,
    },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const lines: string[] = [];
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      lines.push(line);
      if (line.startsWith("ready")) break;
    }
    return lines;
  } finally {
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    await ended;
    await database.drop();
  }
}

test("NODE_TLS_REJECT_UNAUTHORIZED=0 gets a warning at the start, and without it there is none", async () => {
  const [lines, without] = await Promise.all([startLog({ NODE_TLS_REJECT_UNAUTHORIZED: "0" }), startLog({})]);
  expect(lines.at(-1)).toMatch(/^ready/);
  expect(lines.join("\n")).toMatch(/NODE_TLS_REJECT_UNAUTHORIZED=0 does not apply to deliveries/);
  expect(without.at(-1)).toMatch(/^ready/);
  expect(without.join("\n")).not.toMatch(/NODE_TLS_REJECT_UNAUTHORIZED/);
});
