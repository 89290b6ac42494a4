import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseEnv } from "node:util";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { readConfig, variableNames } from "../../src/config/config.ts";
import { SECRETS_IN_FILES } from "../../src/config/secret-files.ts";

const example = read(".env.example");
const table = settingsTable(read("docs/configuration.md"));

function read(file: string): string {
  return readFileSync(fileURLToPath(new URL(`../../${file}`, import.meta.url)), "utf8");
}

/** The first table of the document: default by variable. */
function settingsTable(markdown: string): Map<string, string> {
  const lines = markdown.split("\n");
  const first = lines.findIndex((line) => line.startsWith("| Variable"));
  const rows = lines.slice(first + 2, lines.indexOf("", first));
  return new Map(
    rows.map((row) => {
      const [, name = "", value = ""] = row.split("|").map((cell) => cell.trim().replaceAll("`", ""));
      return [name, value];
    }),
  );
}

test(".env.example has every setting, once, and no other", () => {
  const names = [...example.matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name);
  expect(names).toEqual([...new Set(names)]);
  expect(names.toSorted()).toEqual(variableNames.toSorted());
});

test(".env.example explains each setting in one line above it", () => {
  const lines = example.trimEnd().split("\n").slice(3);
  for (let i = 0; i < lines.length; i += 2) {
    expect(lines[i]).toMatch(/^# .{5,}/);
    expect(lines[i + 1]).toMatch(/^[A-Z_]+=\S*$/);
  }
});

test(".env.example holds the defaults: with it and without it the service is configured alike", () => {
  expect(readConfig(parseEnv(example))).toEqual(readConfig({}));
});

test("docs/configuration.md has every setting with the default of .env.example, and no other", () => {
  expect(Object.fromEntries(table)).toEqual(parseEnv(example));
});

/** Settings that other values of the Helm chart set, or that the chart decides. */
const SET_BY_CHART = {
  ROLE: "a Deployment each",
  HOST: "every address of the pod",
  HTTP_PORT: "the image's, to which the Service leads",
  GRPC_PORT: "the image's, to which the Service leads",
  DATA_DIR: "for embedded servers only",
  METRICS_PORT: "metrics.port",
  TLS_CERT: "tls.secretName",
  TLS_KEY: "tls.secretName",
  SHUTDOWN_DELAY: "api.shutdownDelay",
  DELIVERY_TIMEOUT: "worker.deliveryTimeoutSeconds",
  TEMPORAL_ADDRESS: "temporal.address",
};

test("the Helm chart can set every setting, in one way", () => {
  const schema = JSON.parse(read("deploy/helm/values.schema.json"));
  const { properties, patternProperties } = schema.properties.settings as Record<string, object>;
  const settings = Object.keys(properties ?? {});
  const patterns = Object.keys(patternProperties ?? {});
  const { secrets } = parse(read("deploy/helm/values.yaml")) as { secrets: { keys: Record<string, string> } };
  const own = settings.filter((name) => !name.endsWith("_FILE") || name === "TEMPORAL_CONFIG_FILE");
  const ofService = Object.keys(secrets.keys).filter((name) => name !== "TEMPORAL_API_KEY");
  expect([...own, ...ofService, ...Object.keys(SET_BY_CHART)].sort()).toEqual(variableNames.toSorted());
  for (const name of [...SECRETS_IN_FILES, "TEMPORAL_API_KEY"]) expect(settings).toContain(`${name}_FILE`);
  for (const name of [...Object.keys(SET_BY_CHART), ...Object.keys(secrets.keys)])
    for (const pattern of patterns) expect(name).not.toMatch(new RegExp(pattern));
});
