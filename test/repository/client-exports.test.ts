import { globSync } from "node:fs";
import path from "node:path";
import type { DescService } from "@bufbuild/protobuf";
import { createRouterTransport } from "@connectrpc/connect";
import { expect, test } from "vitest";
import * as client from "../../clients/index.ts";
import clientManifest from "../../clients/package.json" with { type: "json" };
import manifest from "../../package.json" with { type: "json" };
import { root } from "./project.ts";

/** Files of the contract that programs have no use for: sessions are the settings page's own. */
const LEFT_OUT = ["session"];

const files = globSync("proto/webhook/v1/*.proto", { cwd: root }).map((file) =>
  path.basename(file, ".proto"),
);
const exported: Record<string, unknown> = { ...client };
const made = Object.values(client.createWebhookClients(createRouterTransport(() => {})));

/** What buf makes of a file: messages, enums and services, by name. */
const generated = async (file: string): Promise<[string, unknown][]> =>
  Object.entries(await import(`../../gen/webhook/v1/${file}_pb.ts`));

test.each(files.filter((file) => !LEFT_OUT.includes(file)))(
  "the client package has everything of %s.proto, and a client of each of its services",
  async (file) => {
    for (const [name, value] of await generated(file)) {
      expect(exported[name], `clients/index.ts lacks ${name}`).toBe(value);
      const { kind, methods } = value as DescService;
      if (kind !== "service") continue;
      const names = methods.map(({ localName }) => localName);
      expect(made.map(Object.keys), `createWebhookClients lacks ${name}`).toContainEqual(names);
    }
  },
);

test("the client package allows peers from those it is tested with", () => {
  // test/clients/client-package.test.ts installs it with these and with those of the service.
  const { "oldest-protobuf": protobuf, "oldest-connect": connect } = manifest.devDependencies;
  expect(clientManifest.peerDependencies).toEqual({
    "@bufbuild/protobuf": protobuf.replace("npm:@bufbuild/protobuf@", "^"),
    "@connectrpc/connect": connect.replace("npm:@connectrpc/connect@", "^"),
  });
});

test.each(LEFT_OUT)("the client package has nothing of %s.proto", async (file) => {
  expect(files).toContain(file);
  for (const [name] of await generated(file)) expect(exported).not.toHaveProperty(name);
});
