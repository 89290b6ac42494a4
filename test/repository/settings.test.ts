import { parseEnv } from "node:util";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { settingGroups, settingsDocument } from "../../scripts/settings-document.ts";
import { readConfig, variableNames } from "../../src/config/config.ts";
import { SECRETS_IN_FILES } from "../../src/config/secret-files.ts";
import { read } from "./project.ts";

const example = read(".env.example");
const settings = [...settingGroups(example).values()].flat();

/** The maximum of a port, which .env.example does not repeat. */
const PORTS = "65535";
const UNITS: Record<string, number> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
};

/** The error for a value that is too small for every range. */
function refusal(name: string): string {
  for (const value of ["-1", "0", "0ms", "0B"]) {
    try {
      readConfig({ [name]: value });
    } catch (error) {
      if (/from \S+ to/.test(String(error))) return String(error);
    }
  }
  return "";
}

/** A number, duration or amount of memory without its unit. */
function plain(text = ""): number {
  const [, amount, unit = ""] = /^(\d+)(\w*)$/.exec(text) ?? [];
  return Number(amount) * (UNITS[unit] ?? 1);
}

test(".env.example has every setting, once, and no other, and explains it in one line above it, under a heading", () => {
  const names = [...example.matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name);
  expect(names.toSorted()).toEqual(variableNames.toSorted());
  expect(settings.map(({ name }) => name).toSorted()).toEqual(variableNames.toSorted());
  for (const { name, description } of settings) expect(description, name).toMatch(/^.{5,}\.$/);
});

test(".env.example names the range of each number, duration and amount of memory", () => {
  for (const { name, description } of settings) {
    const [, min, max] = /from (\S+) to ([^\s;,]+)/.exec(refusal(name)) ?? [];
    if (min === undefined || max === PORTS) continue;
    const [, first, last] = /(\d\w*)(?: \(no limit\))? to (\d\w*)/.exec(description) ?? [];
    expect([first, last].map(plain), name).toEqual([min, max].map(plain));
  }
});

test(".env.example holds the defaults: with it and without it the service is configured alike", () => {
  expect(readConfig(parseEnv(example))).toEqual(readConfig({}));
});

test("the lists of docs/configuration.md are those that .env.example makes", () => {
  const { current, generated } = settingsDocument();
  expect(current).toBe(generated);
});

/** Settings that other values of the Helm chart set, or that the chart decides: role, ports of the image, probes. */
const SET_BY_CHART =
  "ROLE HOST HTTP_PORT GRPC_PORT DATA_DIR METRICS_PORT TLS_CERT TLS_KEY SHUTDOWN_DELAY DELIVERY_TIMEOUT TEMPORAL_ADDRESS".split(
    " ",
  );

test("the Helm chart can set every setting, in one way, and leaves Temporal's namespace to the profile unless it is set", () => {
  const schema = JSON.parse(read("deploy/helm/values.schema.json"));
  const { properties, patternProperties } = schema.properties.settings as Record<string, object>;
  const settings = Object.keys(properties ?? {});
  const { secrets, temporal } = parse(read("deploy/helm/values.yaml")) as {
    secrets: { keys: Record<string, string> };
    temporal: { namespace: string };
  };
  const own = settings.filter((name) => !name.endsWith("_FILE") || name === "TEMPORAL_CONFIG_FILE");
  const ofService = Object.keys(secrets.keys).filter((name) => name !== "TEMPORAL_API_KEY");
  expect([...own, ...ofService, ...SET_BY_CHART].sort()).toEqual(variableNames.toSorted());
  for (const name of [...SECRETS_IN_FILES, "TEMPORAL_API_KEY"]) expect(settings).toContain(`${name}_FILE`);
  for (const pattern of Object.keys(patternProperties ?? {}))
    for (const name of [...SET_BY_CHART, ...Object.keys(secrets.keys)])
      expect(name).not.toMatch(new RegExp(pattern));
  expect(temporal.namespace).toBe("");
  expect(read("deploy/helm/templates/_helpers.tpl")).toContain(
    "{{- with $root.Values.temporal.namespace }}\n- name: TEMPORAL_NAMESPACE\n",
  );
});
