import { parseEnv } from "node:util";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { variableNames } from "../../src/config/config.ts";
import { read } from "./project.ts";

/** A service as far as these tests look at it. */
interface ComposeService {
  image: string;
  user?: string;
  cap_drop?: string[];
  security_opt?: string[];
  read_only?: boolean;
  privileged?: boolean;
  cap_add?: string[];
  ports?: string[];
  volumes?: string[];
  tmpfs?: string[];
  shm_size?: string;
  stop_grace_period?: string;
  environment?: Record<string, string>;
}

const text = read("docker-compose.yml");
const services = Object.entries(
  (parse(text, { merge: true }) as { services: Record<string, ComposeService> }).services,
);
const environmentOf = (name: string) => services.find(([each]) => each === name)?.[1].environment ?? {};

describe.each(services)("the container %s", (_name, service) => {
  test("has no capabilities, gains no privileges and cannot change its image's files", () => {
    expect(service.cap_drop).toEqual(["ALL"]);
    expect(service.cap_add).toBeUndefined();
    expect(service.privileged).toBeUndefined();
    expect(service.security_opt).toContain("no-new-privileges:true");
    expect(service.read_only).toBe(true);
    expect(service.tmpfs).toContain("/tmp");
    for (const volume of service.volumes ?? []) expect(volume).toMatch(/^[\w-]+:|:ro$/);
  });

  test("is reached from this machine alone, unless the operator names another address", () => {
    for (const port of service.ports ?? [])
      expect(port).toMatch(/^(127\.0\.0\.1|\$\{PUBLISH_ADDRESS:-127\.0\.0\.1\}):/);
  });

  test("has no password that the operator did not choose", () => {
    for (const [name, value] of Object.entries(service.environment ?? {})) {
      if (/PASSWORD|PWD|SECRET_KEY$|ADMIN_KEY/.test(name)) expect(value, name).toMatch(/^\$\{\w+:\?.*\}$/);
      const [, password] = /^\w+:\/\/[^:@]+:(.*)@[^@]*$/.exec(String(value)) ?? [];
      if (password !== undefined) expect(password, name).toMatch(/^\$\{\w+:\?.*\}$/);
    }
  });
});

test("the Temporal UI is on 127.0.0.1 and cannot write; Temporal itself is not published", () => {
  const ui = services.find(([name]) => name === "temporal-ui")?.[1];
  expect(ui?.environment?.TEMPORAL_DISABLE_WRITE_ACTIONS).toBe("true");
  expect(ui?.ports).toEqual(["127.0.0.1:8233:8080"]);
  expect(text).not.toMatch(/:7233"/);
  expect(environmentOf("worker").TEMPORAL_ADDRESS).toBe("temporal:7233");
});

test("no container runs as root: ours by its Dockerfile, PostgreSQL by its user", () => {
  const stages = read("Dockerfile").split(/^FROM /m);
  expect(stages.at(-1)).toMatch(/^USER 1000:1000$/m);
  const postgres = services.filter(([, { image }]) => image.startsWith("postgres:"));
  expect(postgres).toHaveLength(2);
  for (const [name, { user }] of postgres) expect(user, name).toBe("postgres");
});

test("PostgreSQL has shared memory for parallel queries, of which a container has 64 MB otherwise", () => {
  for (const [name, { image, shm_size }] of services)
    if (image.startsWith("postgres:")) expect(Number.parseInt(shm_size ?? "", 10), name).toBeGreaterThan(64);
});

test("the README sets everything that the compose file asks for", () => {
  const needed = new Set([...text.matchAll(/\$\{(\w+):\?/g)].map(([, name]) => name));
  expect([...needed].sort()).toEqual([
    "ADMIN_KEY",
    "POSTGRES_PASSWORD",
    "SECRET_KEY",
    "TEMPORAL_POSTGRES_PASSWORD",
  ]);
  const deploy = /## Deploy it\n(.*?)\n## /s.exec(read("README.md"))?.[1];
  for (const name of needed) expect(deploy).toContain(`${name}=`);
});

test("the service's containers may stop for as long as the operator says, by default 50 s longer than an attempt takes", () => {
  const { DELIVERY_TIMEOUT } = parseEnv(read(".env.example"));
  for (const name of ["api", "worker"]) {
    const period = services.find(([each]) => each === name)?.[1].stop_grace_period ?? "";
    const [, seconds] = /^\$\{STOP_GRACE_PERIOD:-(\d+)s\}$/.exec(period) ?? [];
    expect(Number(seconds), name).toBeGreaterThanOrEqual(Number.parseInt(DELIVERY_TIMEOUT ?? "", 10) + 50);
  }
});

/** Settings that the compose file itself decides, and not the operator. */
const DECIDED = {
  ROLE: "one container each",
  HOST: "every address of the container",
  HTTP_PORT: "the image's, to which the published port leads",
  GRPC_PORT: "the image's, to which the published port leads",
  DATA_DIR: "for embedded servers only",
  DATABASE_URL: "its own PostgreSQL",
  TEMPORAL_ADDRESS: "its own Temporal",
  TEMPORAL_PROFILE: "its own Temporal",
  TEMPORAL_CONFIG_FILE: "its own Temporal",
};

describe.each(["api", "worker"])("the environment of the container %s", (name) => {
  const environment = environmentOf(name);

  test("passes every setting of the operator's on, with the default of .env.example", () => {
    const defaults = parseEnv(read(".env.example"));
    for (const setting of variableNames) {
      if (setting in DECIDED) continue;
      const value = environment[setting];
      if (value?.startsWith(`\${${setting}:?`)) continue;
      const [, otherwise] = new RegExp(`^\\$\\{${setting}:-([^}]*)\\}$`).exec(value ?? "") ?? [];
      expect(otherwise, setting).toBeDefined();
      // Links to the Temporal UI of this compose file.
      if (setting !== "TEMPORAL_UI_URL") expect(otherwise, setting).toBe(defaults[setting]);
    }
  });

  test("passes every variable of OpenTelemetry on that docs/operations.md names", () => {
    const named = new Set(read("docs/operations.md").match(/\bOTEL_[A-Z_]+\b/g));
    expect(named.size).toBeGreaterThan(10);
    for (const variable of named) expect(environment[variable], variable).toBe(`\${${variable}:-}`);
  });

  test("has nothing that the service does not read", () => {
    for (const variable of Object.keys(environment))
      if (!/^(OTEL|TEMPORAL)_/.test(variable)) expect(variableNames).toContain(variable);
  });
});
