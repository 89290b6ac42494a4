import { execFileSync } from "node:child_process";
import { symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { typesOf } from "../../../src/contract/event-types/type-names.ts";
import { typescriptOf } from "../../../src/contract/event-types/typescript.ts";
import { deliveries, folder, removeFolder, root, secret, types } from "./receiver-deliveries.ts";

afterAll(removeFolder);

test("each message and enum of all event types has one name, regardless of case", () => {
  const names = typesOf(types, []).types.map(({ name }) => name.toLowerCase());
  expect(new Set(names).size).toBe(names.length);
});

describe("types.ts", () => {
  const file = path.join(folder, "types.ts");
  writeFileSync(file, typescriptOf(types));
  writeFileSync(path.join(folder, "package.json"), `{"type":"module"}`);
  symlinkSync(`${root}node_modules`, path.join(folder, "node_modules"), "dir");

  test("type checks, and narrows events by their type", () => {
    writeFileSync(
      path.join(folder, "use.ts"),
      `import { receive, type WebhookEvent } from "./types.ts";
      export function handle(event: WebhookEvent): string | number | bigint {
        if (event.type === "InvoicePaid") return event.payload.Total.Minor;
        if (event.type === "Recorded") return event.payload.Parent?.Kind ?? event.payload.Count ?? "none";
        // @ts-expect-error OrderDispatched has no such property
        if (event.type === "OrderDispatched") return event.payload.Total;
        return event.id;
      }
      handle(receive("whsec_", {}, ""));`,
    );
    const options =
      "--noEmit --strict --noUncheckedIndexedAccess --module nodenext --target es2022 --allowImportingTsExtensions --skipLibCheck";
    execFileSync(`${root}node_modules/.bin/tsc`, [...options.split(" "), "use.ts"], { cwd: folder });
  });

  test("verifies and parses a delivery of each event type, with every digit of integers", async () => {
    const { receive } = await import(file);
    for (const { name, id, body, headers } of deliveries) {
      const event = receive(secret, headers, body);
      expect(event).toMatchObject({ type: name, id, isTest: false });
      expect(written(event.payload)).toBe(body);
    }
    const [first] = deliveries;
    expect(() => receive(secret, first?.headers, `${first?.body} `)).toThrow();
    const unknown = { ...first?.headers, "X-Service-Webhook-Process": "Later" };
    expect(() => receive(secret, unknown, first?.body)).toThrow("get types.ts again");
  });
});

/** JSON with integers as they are; TypeScript does not know `rawJSON` yet. */
function written(payload: unknown): string {
  const { rawJSON } = JSON as unknown as { rawJSON: (text: string) => unknown };
  return JSON.stringify(payload, (_key, value) =>
    typeof value === "bigint" ? rawJSON(String(value)) : value,
  );
}
