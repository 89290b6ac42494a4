import { parseEnv } from "node:util";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { variableNames } from "../../src/config/config.ts";
import { read } from "./project.ts";

/** A container as far as these tests look at it. */
interface Container {
  image: string;
  user?: string;
  ports?: string[];
  volumes?: string[];
  tmpfs?: string[];
  shm_size?: string;
  stop_grace_period?: string;
  environment?: Record<string, string>;
}

const text = read("docker-compose.yml");
const { services } = parse(text, { merge: true }) as { services: Record<string, Container> };
const defaults = parseEnv(read(".env.example"));
const CHOSEN_BY_THE_OPERATOR = /^\$\{\w+:\?.*\}$/;

test.each(Object.entries(services))(
  "the container %s has no capabilities, gains no privileges, cannot change its image's files, is reached from this machine alone and has only passwords that the operator chose",
  (_name, service) => {
    const { volumes = [], tmpfs, ports = [], environment = {} } = service;
    expect(service).toMatchObject({
      cap_drop: ["ALL"],
      security_opt: expect.arrayContaining(["no-new-privileges:true"]),
      read_only: true,
    });
    for (const weakening of ["cap_add", "privileged"]) expect(service).not.toHaveProperty(weakening);
    expect(tmpfs).toContain("/tmp");
    for (const volume of volumes) expect(volume).toMatch(/^[\w-]+:|:ro$/);
    for (const port of ports) expect(port).toMatch(/^(127\.0\.0\.1|\$\{PUBLISH_ADDRESS:-127\.0\.0\.1\}):/);
    for (const [name, value] of Object.entries(environment)) {
      const [, password] = /^\w+:\/\/[^:@]+:(.*)@[^@]*$/.exec(String(value)) ?? [];
      const secret = /PASSWORD|PWD|SECRET_KEY$|ADMIN_KEY/.test(name) ? value : password;
      if (secret !== undefined) expect(secret, name).toMatch(CHOSEN_BY_THE_OPERATOR);
    }
  },
);

test("the Temporal UI is on 127.0.0.1 and cannot write; Temporal itself is not published", () => {
  expect(services["temporal-ui"]).toMatchObject({
    environment: { TEMPORAL_DISABLE_WRITE_ACTIONS: "true" },
    ports: ["127.0.0.1:8233:8080"],
  });
  expect(text).not.toMatch(/:7233"/);
  expect(services.worker?.environment?.TEMPORAL_ADDRESS).toBe("temporal:7233");
});

test("no container runs as root, and PostgreSQL has more than the 64 MB of shared memory that a container has otherwise", () => {
  const stages = read("Dockerfile").split(/^FROM /m);
  expect(stages.at(-1)).toMatch(/^USER 1000:1000$/m);
  const postgres = Object.values(services).filter(({ image }) => image.startsWith("postgres:"));
  expect(postgres).toHaveLength(2);
  for (const { user, shm_size = "" } of postgres) {
    expect(user).toBe("postgres");
    expect(Number.parseInt(shm_size, 10)).toBeGreaterThan(64);
  }
});

test("the README sets everything that the compose file asks for", () => {
  const needed = new Set([...text.matchAll(/\$\{(\w+):\?/g)].map(([, name]) => name));
  expect([...needed].sort().join(" ")).toBe(
    "ADMIN_KEY POSTGRES_PASSWORD SECRET_KEY TEMPORAL_POSTGRES_PASSWORD",
  );
  const deploy = /## Deploy it\n(.*?)\n## /s.exec(read("README.md"))?.[1];
  for (const name of needed) expect(deploy).toContain(`${name}=`);
});

/** Settings that the compose file itself decides, and not the operator: role, ports of the image, its own servers. */
const DECIDED =
  "ROLE HOST HTTP_PORT GRPC_PORT DATA_DIR DATABASE_URL TEMPORAL_ADDRESS TEMPORAL_PROFILE TEMPORAL_CONFIG_FILE";

describe.each(["api", "worker"])("the container %s", (name) => {
  const { environment = {}, stop_grace_period = "" } = services[name] ?? {};

  test("may stop for as long as the operator says, by default 50 s longer than an attempt takes", () => {
    const [, seconds] = /^\$\{STOP_GRACE_PERIOD:-(\d+)s\}$/.exec(stop_grace_period) ?? [];
    const attempt = Number.parseInt(defaults.DELIVERY_TIMEOUT ?? "", 10);
    expect(Number(seconds)).toBeGreaterThanOrEqual(attempt + 50);
  });

  test("passes every setting of the operator's on, with the default of .env.example", () => {
    for (const setting of variableNames) {
      const value = environment[setting] ?? "";
      if (DECIDED.split(" ").includes(setting) || CHOSEN_BY_THE_OPERATOR.test(value)) continue;
      const [, variable, otherwise] = /^\$\{(\w+):-([^}]*)\}$/.exec(value) ?? [];
      expect(variable).toBe(setting);
      // Links to the Temporal UI of this compose file.
      if (setting === "DISPATCH_ON_PUBLISH") expect(otherwise).toBe("true");
      else if (setting !== "TEMPORAL_UI_URL") expect(otherwise, setting).toBe(defaults[setting]);
    }
  });

  test("passes every variable of OpenTelemetry on that docs/operations.md names, and nothing that the service does not read", () => {
    const named = new Set(read("docs/operations.md").match(/\bOTEL_[A-Z_]+\b/g));
    expect(named.size).toBeGreaterThan(10);
    for (const variable of named) expect(environment[variable], variable).toBe(`\${${variable}:-}`);
    const others = Object.keys(environment).filter((variable) => !/^(OTEL|TEMPORAL)_/.test(variable));
    for (const variable of others) expect(variableNames).toContain(variable);
  });
});
