import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { deliveryEnvironment } from "../../src/app/delivery-processes.ts";
import { ConfigError } from "../../src/config/config-error.ts";
import { temporalTarget } from "../../src/temporal/target.ts";
import { temporaryFolder } from "../lib/dev-servers/support.ts";

/** The environment of a user with this default configuration file of Temporal. */
async function userWith(content: string): Promise<NodeJS.ProcessEnv> {
  const home = await temporaryFolder();
  const environment = { HOME: home, XDG_CONFIG_HOME: path.join(home, ".config"), APPDATA: home };
  for (const folder of [".config", "Library/Application Support", "."]) {
    await mkdir(path.join(home, folder, "temporalio"), { recursive: true });
    await writeFile(path.join(home, folder, "temporalio/temporal.toml"), content);
  }
  return environment;
}

const CLOUD = `[profile.default]
address = "cloud.example:7233"
namespace = "orders"
api_key = "secret"
`;

const embedded = { connectionOptions: { address: "127.0.0.1:7233" }, namespace: "default" };
const external = {
  connectionOptions: expect.objectContaining({ address: "temporal.example:7233", apiKey: "secret" }),
  namespace: "orders",
};

test.each([
  ["the embedded Temporal in spite of a configuration file that names Temporal Cloud", CLOUD, {}, embedded],
  ["the embedded Temporal in spite of an empty configuration file", "", {}, embedded],
  [
    "the configuration file with an external Temporal",
    CLOUD,
    { TEMPORAL_ADDRESS: "temporal.example:7233" },
    external,
  ],
])("delivery processes use %s", async (_, content, settings, target) => {
  const environment = deliveryEnvironment(
    { ...(await userWith(content)), ...settings },
    {
      databaseUrl: "postgres://127.0.0.1/webhook",
      secretKey: Buffer.alloc(32),
      temporalAddress: target === embedded ? "127.0.0.1:7233" : undefined,
    },
  );
  expect(temporalTarget(environment)).toEqual(target);
});

test.each([
  ["that is empty", "", "it has no profile"],
  ["that is not TOML", "[profile.default", "Invalid TOML document"],
])(
  "an external Temporal with a configuration file %s is a configuration error",
  async (_, content, reason) => {
    const environment = { ...(await userWith(content)), TEMPORAL_ADDRESS: "temporal.example:7233" };
    const target = () => temporalTarget(environment);
    expect(target).toThrow(ConfigError);
    expect(target).toThrow(
      `Temporal's configuration (temporal.toml in the configuration folder of the user) cannot be used: ${reason}`,
    );
  },
);
