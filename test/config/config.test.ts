import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import { rootCertificates } from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { ConfigError } from "../../src/config/config-error.ts";

const KEY = Buffer.alloc(32, 7).toString("base64");
const DATABASE = "postgres://user:telling-password@db.example:5432/webhook";
/** What processes share that are not alone. */
const SHARED = { DATABASE_URL: DATABASE, SECRET_KEY: KEY, TEMPORAL_ADDRESS: "temporal.example:7233" };

function refusal(environment: Record<string, string>): string {
  try {
    readConfig(environment);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as ConfigError).message;
  }
  throw new Error("the settings were taken");
}

test("authorities that Node cannot read, or that are none, stop the start by name, and others do not", () => {
  const folder = mkdtempSync(path.join(tmpdir(), "webhook-authorities-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string, content: string) => {
    writeFileSync(path.join(folder, name), content);
    return path.join(folder, name);
  };
  const at = (NODE_EXTRA_CA_CERTS: string) => ({ NODE_EXTRA_CA_CERTS });
  const missing = path.join(folder, "missing.pem");
  expect(refusal(at(missing))).toMatch(`NODE_EXTRA_CA_CERTS: cannot read the file ${missing} (ENOENT)`);
  expect(refusal(at(folder))).toMatch("NODE_EXTRA_CA_CERTS: ");
  const text = file("text.pem", "hunter2");
  expect(refusal(at(text))).toBe(
    `NODE_EXTRA_CA_CERTS: the file ${text} holds no certificate; name a file with certificates in PEM`,
  );
  expect(() => readConfig(at(file("ca.pem", rootCertificates.slice(0, 2).join("\n"))))).not.toThrow();
  expect(() => readConfig(at(""))).not.toThrow();
});

describe("the settings", () => {
  test("have defaults for a service on embedded parts", () => {
    expect(readConfig({})).toMatchObject({
      role: "all",
      httpPort: 8080,
      grpcPort: 9090,
      dataDir: ".data",
      logLevel: "info",
      database: { url: undefined },
      temporal: { external: false },
      dispatch: { intervalMs: 60_000, retryInitialDelayMs: 60_000, retryBackoffCoefficient: 5 },
      // In one process for each other core, beside the API.
      delivery: {
        timeoutMs: 15_000,
        allowedNetworks: [],
        allowedHosts: [],
        allowedPorts: [],
        proxyDns: "local",
        processes: Math.min(4, Math.max(1, availableParallelism() - 1)),
      },
    });
    expect(readConfig({ ...SHARED, ROLE: "worker" }).delivery.processes).toBe(1);
  });

  test.each([
    ["DELIVERY_PROCESSES", "7", { delivery: { processes: 7 } }],
    ["DISPATCH_INTERVAL", "5m", { dispatch: { intervalMs: 300_000 } }],
    ["DISPATCH_INTERVAL", "1h30m", { dispatch: { intervalMs: 5_400_000 } }],
    ["DELIVERY_MEMORY", "128Mi", { delivery: { memoryBytes: 134_217_728 } }],
    ["DELIVERY_MEMORY", "64 MiB", { delivery: { memoryBytes: 67_108_864 } }],
    ["DELIVERY_MEMORY", "64MB", { delivery: { memoryBytes: 64_000_000 } }],
    ["DELIVERY_MEMORY", "1G", { delivery: { memoryBytes: 1_000_000_000 } }],
    ["DELIVERY_MEMORY", "67108864", { delivery: { memoryBytes: 67_108_864 } }],
    ["ROLE", "ALL", { role: "all" }],
    ["LOG_LEVEL", "INFO", { logLevel: "info" }],
    ["LOG_LEVEL", "warning", { logLevel: "warn" }],
    ["ACCESS_LOG", "True", { accessLog: true }],
    ["SEARCH_INDEX", "no", { searchIndex: false }],
    ["ACCESS_LOG", "1", { accessLog: true }],
    ["DELIVERY_PROXY", "proxy.example:3128", { delivery: { proxy: { protocol: "http", port: 3_128 } } }],
    ["RETRY_INITIAL_DELAY", "1.5s", { dispatch: { retryInitialDelayMs: 1_500 } }],
    ["DELIVERY_TIMEOUT", "900ms", { delivery: { timeoutMs: 900 } }],
    ["DELIVERY_ALLOWED_PORTS", "6379, 9200", { delivery: { allowedPorts: [6379, 9200] } }],
    ["APP_ISOLATION", "strict", { isolatesApps: true }],
    ["APP_ISOLATION", "contract", { isolatesApps: false }],
    ["BASE_PATH", "/webhooks", { basePath: "/webhooks" }],
    ["BASE_PATH", " /api/~team.a/web-hooks_1// ", { basePath: "/api/~team.a/web-hooks_1" }],
    ["BASE_PATH", "/", { basePath: "" }],
    ["BASE_PATH", "", { basePath: "" }],
    [
      "DELIVERY_ALLOWED_HOSTS",
      "Receiver.internal., *.Team-a.svc, receiver, *.internal, bücher.example, my_host",
      {
        delivery: {
          allowedHosts: [
            "receiver.internal",
            "*.team-a.svc",
            "receiver",
            "*.internal",
            "xn--bcher-kva.example",
            "my_host",
          ],
        },
      },
    ],
    ["TRUST_PROXY", "10.0.0.0/8", { limits: { trustedProxies: [expect.anything()] } }],
    ["ADMIN_KEY", "k".repeat(32), { adminKey: "k".repeat(32) }],
    ["LOG_LEVEL", "", { logLevel: "info" }],
    ["DISPATCH_INTERVAL", "24h", { dispatch: { intervalMs: 86_400_000 } }],
    [
      "SECRET_KEY_PREVIOUS",
      `${KEY}, ${"0f".repeat(32)}`,
      { previousSecretKeys: [Buffer.from(KEY, "base64"), Buffer.alloc(32, 0x0f)] },
    ],
    ["DELIVERY_PROXY", "http://proxy.example", { delivery: { proxy: { protocol: "http", port: 80 } } }],
    [
      "DELIVERY_PROXY",
      "socks5://Proxy.example",
      { delivery: { proxy: { host: "proxy.example", port: 1_080 } } },
    ],
    [
      "DELIVERY_PROXY",
      "https://us%20er:p%40ss@[2001:DB8::1]:8443/",
      {
        delivery: {
          proxy: {
            protocol: "https",
            host: "2001:db8::1",
            port: 8_443,
            credentials: { username: "us er", password: "p@ss" },
          },
        },
      },
    ],
  ])("take %s=%s", (name, value, config) => {
    expect(readConfig({ [name]: value })).toMatchObject(config);
  });

  test("take networks that the address guard lets through", () => {
    const { delivery } = readConfig({ DELIVERY_ALLOWED_NETWORKS: "10.0.0.0/8, fd00::/8" });
    expect(delivery.allowedNetworks.map(String)).toEqual(["10.0.0.0/8", "fd00::/8"]);
    expect(delivery.customerNetworks).toEqual([]);
    const customers = readConfig({ CUSTOMER_ALLOWED_NETWORKS: "10.0.0.0/8" }).delivery;
    expect([customers.allowedNetworks, customers.customerNetworks.map(String)]).toEqual([[], ["10.0.0.0/8"]]);
    const { limits } = readConfig({ TRUST_PROXY: "192.168.1.7, 2001:db8::1, 10.0.0.0/8" });
    expect(limits.trustedProxies.map(([address, bits]) => `${address}/${bits}`)).toEqual([
      "192.168.1.7/32",
      "2001:db8::1/128",
      "10.0.0.0/8",
    ]);
  });

  test("start a run at least every hour if its pumps linger, so that its history stays within Temporal's limit", () => {
    const { dispatch } = readConfig({ DISPATCH_INTERVAL: "24h", DISPATCH_ON_PUBLISH: "true" });
    expect(dispatch.intervalMs).toBe(3_600_000);
  });

  test.each([
    [{ HTTP_PORT: "9090" }, "HTTP_PORT and GRPC_PORT are both 9090: set them to different ports"],
    [{ HTTP_PORT: "8000", METRICS_PORT: "8000" }, "HTTP_PORT and METRICS_PORT are both 8000"],
    [{ METRICS_PORT: "9090" }, "GRPC_PORT and METRICS_PORT are both 9090"],
  ])("are refused if two listeners of the process have the same port: %j", (environment, message) => {
    expect(refusal(environment)).toContain(message);
  });

  test("may have the port 0, a free one, more than once, and a worker no port of gRPC", () => {
    readConfig({ HTTP_PORT: "0", GRPC_PORT: "0", METRICS_PORT: "0" });
    readConfig({ ...SHARED, ROLE: "worker", HTTP_PORT: "9090" });
  });

  test.each([
    ["SECRET_KEY_PREVIOUS", ["too-short"]],
    ["RATE_LIMIT_PER_MINUTE", ["-1"]],
    ["WRONG_KEYS_PER_MINUTE", ["some"]],
    [
      "BASE_PATH",
      ["webhooks", "//hooks", "/a//b", "/a/../b", "/.", "/a?b", "/a b", "/%61", '/"', "https://a.example/b"],
    ],
    ["BASE_PATH", ["/docs", "/openapi.json/", "/healthz", "/readyz"]],
    ["TRUST_PROXY", ["true"]],
    ["MAX_WEBHOOKS", ["0"]],
    ["MAX_API_KEYS", ["0"]],
    ["MAX_INSTALLED_APPS", ["0"]],
    ["ROLE", ["boss"]],
    ["HTTP_PORT", ["http", "70000"]],
    ["GRPC_PORT", ["-1"]],
    ["DISPATCH_INTERVAL", ["60", "10ms"]],
    ["RETRY_BACKOFF_COEFFICIENT", ["0.5"]],
    ["DELIVERY_TIMEOUT", ["soon"]],
    ["DISPATCH_INTERVAL", ["", "1h 30", "m", "1h30", "PT5M"].slice(1)],
    ["DELIVERY_MEMORY", ["64 potatoes", "64m", "-1", "1KiB"]],
    ["ACCESS_LOG", ["maybe"]],
    ["DELIVERY_ALLOWED_NETWORKS", ["10.0.0.0", "fd00::", "10.0.0.0/99", "db.example"]],
    ["CUSTOMER_ALLOWED_NETWORKS", ["10.0.0.0", "everything"]],
    ["APP_ISOLATION", ["true", "app"]],
    ["DELIVERY_ALLOWED_PORTS", ["0", "65536", "redis"]],
    [
      "DELIVERY_ALLOWED_HOSTS",
      ["*", "*.", ".", "a.*.b", "*a.b", "a..b", "https://a.b", "a.b:8443", "a.b/c", "a b"],
    ],
    [
      "DELIVERY_ALLOWED_HOSTS",
      ["10.0.0.1", "*.10.0.0.1", "[::1]", "2130706433", "user@a.b", "a.b?c", "a.b#c"],
    ],
    ["DELIVERY_PROXY_DNS", ["proxy"]],
    ["DELIVERY_PROXY", ["proxy.example:http", "socks5h://proxy.example", "http://proxy.example/?x=1"]],
    ["DELIVERY_PROXY", ["socks5://user@proxy.example"]],
    ["TEMPORAL_UI_URL", ["not a url", "temporal-ui.example:8080"]],
    ["TEMPORAL_DEPLOYMENT_NAME", ["webhook.service"]],
    ["TEMPORAL_WORKER_BUILD_ID", ["a build"]],
    ["LOG_LEVEL", ["loud"]],
    ["SMTP_URL", ["https://smtp.example", "smtp://user:100%@smtp.example"]],
    ["SMTP_URL", ["smtp://smtp.example/?tls.rejectUnauthorized=false"]],
    ["SMTP_FROM", ["Webhooks", "a@b.example, c@d.example", "Webhooks <>", "a b@c.example>", " "]],
    ["SMTP_FROM", ["Webhooks <a@b.example\r\nBcc: c@d.example>", "We\nb <a@b.example>"]],
    ["NOTICE_EMAILS", ["ops@example.com, dev", "Ops <dev>", "a@b@c.example"]],
    ["NOTICE_EMAIL_INTERVAL", ["0s"]],
  ])("refuse by name a %s of %j", (name, values) => {
    for (const value of values) expect(refusal({ [name]: value })).toContain(name);
  });

  test.each([
    ["DISPATCH_INTERVAL", "25h", '"25h" is out of range; allowed: from 1s to 24h'],
    ["SHUTDOWN_DELAY", "1h", '"1h" is out of range; allowed: from 0ms to 10m'],
    ["FILTER_TIMEOUT", "1ms", '"1ms" is out of range; allowed: from 10ms to 1s'],
    ["DELIVERY_PROXY_DNS", "proxy", '"proxy" is not allowed; allowed: local, remote'],
    ["DELIVERY_PROXY", "socks5h://proxy.example", "DELIVERY_PROXY_DNS=remote"],
  ])("say what is allowed instead of %s=%s", (name, value, message) => {
    expect(refusal({ [name]: value })).toContain(message);
  });

  const mail = {
    SMTP_URL: "smtps://user:secret@smtp.example",
    SMTP_FROM: "webhooks@example.com",
    NOTICE_EMAILS: "ops@example.com, dev@example.com",
  };
  const version = {
    TEMPORAL_DEPLOYMENT_NAME: "shop/webhook-service",
    TEMPORAL_WORKER_BUILD_ID: "1.4.0-rc.1",
  };

  test("take where notices are e-mailed to, and the version of the workers, each only as a whole", () => {
    const { noticeMail, dispatch } = readConfig({ ...mail, ...version });
    expect(noticeMail).toEqual({
      smtpUrl: "smtps://user:secret@smtp.example",
      from: "webhooks@example.com",
      to: ["ops@example.com", "dev@example.com"],
      intervalMs: 900_000,
    });
    expect(dispatch.deployment).toEqual({ name: "shop/webhook-service", buildId: "1.4.0-rc.1" });
    expect([readConfig({}).noticeMail, readConfig({}).dispatch.deployment]).toEqual([undefined, undefined]);
    for (const name of Object.keys(mail))
      expect(refusal({ ...mail, [name]: "" })).toContain(
        "only some of SMTP_URL, SMTP_FROM and NOTICE_EMAILS are set",
      );
    for (const name of Object.keys(version))
      expect(refusal({ ...version, [name]: "" })).toContain(
        "only one of TEMPORAL_DEPLOYMENT_NAME and TEMPORAL_WORKER_BUILD_ID is set",
      );
  });

  test.each([
    ["hooks@example.com", "hooks@example.com"],
    ["<hooks@example.com>", "hooks@example.com"],
    ["Webhooks <hooks@example.com>", '"Webhooks" <hooks@example.com>'],
    ['"Acme, Inc." <hooks@example.com>', '"Acme, Inc." <hooks@example.com>'],
    ["Größe & Co <hooks@bücher.example>", '"Größe & Co" <hooks@bücher.example>'],
    ["root@localhost", "root@localhost"],
  ])("take the sender %s of e-mails, and recipients alike", (given, address) => {
    const { noticeMail } = readConfig({
      ...mail,
      SMTP_FROM: given,
      NOTICE_EMAILS: `dev@example.com,${given}`,
    });
    expect([noticeMail?.from, noticeMail?.to]).toEqual([address, ["dev@example.com", address]]);
  });

  test.each([
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" }, "OTEL_EXPORTER_OTLP_PROTOCOL"],
    [{ OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "grpc" }, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"],
    [{ OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: "GRPC" }, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"],
  ])("refuse OTLP over gRPC, and say what to set: %j", (environment, name) => {
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4317" };
    const message = refusal({ ...endpoint, ...environment });
    expect(message).toBe(
      `${name}: grpc is not supported; set it to http/protobuf, and OTEL_EXPORTER_OTLP_ENDPOINT to the collector's port for HTTP, such as http://collector:4318`,
    );
    // Nothing is sent by it.
    readConfig(environment);
    readConfig({ ...endpoint, ...environment, OTEL_SDK_DISABLED: "true" });
    readConfig({ ...endpoint, ...environment, [name]: "http/protobuf" });
  });

  test.each([
    ["SECRET_KEY", "telling-secret"],
    ["SECRET_KEY_PREVIOUS", `${KEY},telling-secret`],
    ["SMTP_URL", "smtp://user:telling-password@mail/x"],
    ["ADMIN_KEY", "telling key"],
    ["DATABASE_URL", "mysql://user:telling-password@db/x"],
    ["DATABASE_URL", "postgres://user:telling-password@db/x?target_session_attrs=standby"],
    ["DATABASE_DIRECT_URL", "postgres://user:telling-password@db/x?target_session_attrs=read-only"],
    ["DATABASE_READ_URL", "postgres://user:telling-password@db/x?target_session_attrs=replica"],
    ["DELIVERY_PROXY", "ftp://user:telling@proxy"],
    ["DELIVERY_PROXY", "http://user:telling@proxy/path"],
    ["DELIVERY_PROXY", "http://a:telling%@proxy"],
  ])("never repeat a secret in their errors: %s=%s", (name, value) => {
    expect(refusal({ [name]: value })).toContain(name);
    expect(refusal({ [name]: value })).not.toMatch(/telling|BwcH/);
  });

  test("take an ADMIN_KEY of 32 characters at least, and say how to make one", () => {
    const message = refusal({ ADMIN_KEY: "k".repeat(31) });
    expect(message).toContain("the key has 31 characters; it must be 32 to 200 visible ASCII characters");
    expect(message).toContain("openssl rand -hex 24");
  });

  test.each([
    ["share parts", { ROLE: "worker" }, /DATABASE_URL is missing[\s\S]*TEMPORAL_ADDRESS is missing/],
    ["share parts", { ROLE: "api" }, /DATABASE_URL is missing/],
    ["connect directly", { DATABASE_DIRECT_URL: DATABASE }, /DATABASE_URL is missing/],
    ["share a database", { DATABASE_URL: DATABASE }, /SECRET_KEY is missing/],
    [
      "let a proxy look names up",
      { DELIVERY_PROXY_DNS: "remote" },
      /DELIVERY_PROXY is missing.*set DELIVERY_PROXY, or/,
    ],
    ["speak TLS", { TLS_CERT: "/nowhere.pem" }, /TLS_CERT and TLS_KEY is set: set both/],
    ["speak TLS", { TLS_CERT: "/nowhere.pem", TLS_KEY: "/nowhere.key" }, /TLS_CERT: cannot read/],
  ])("of processes that %s must be complete: %j", (_what, environment, message) => {
    expect(refusal(environment)).toMatch(message);
  });

  test("take Temporal's own variables to mean that it is not embedded", () => {
    const { TEMPORAL_ADDRESS, ...shared } = SHARED;
    expect(() => readConfig({ ...shared, ROLE: "api" })).not.toThrow();
    for (const own of [{ TEMPORAL_ADDRESS }, { TEMPORAL_PROFILE: "cloud" }])
      expect(readConfig({ ...shared, ...own, ROLE: "worker" }).temporal.external).toBe(true);
  });
});

test("every wrong value is named at once", () => {
  const message = refusal({ HTTP_PORT: "x", DELIVERY_TIMEOUT: "y", ROLE: "z" });
  for (const name of ["HTTP_PORT", "DELIVERY_TIMEOUT", "ROLE"]) expect(message).toContain(name);
});

describe("secrets from files", () => {
  /** Writes a file with the text; returns its path. */
  function file(text: string): string {
    const folder = mkdtempSync(path.join(tmpdir(), "webhook-test-secrets-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const name = path.join(folder, "secret");
    writeFileSync(name, text);
    return name;
  }

  test("are taken without the line break at their end", () => {
    const secrets = {
      DATABASE_URL: DATABASE,
      DATABASE_READ_URL: `${DATABASE}-replica?target_session_attrs=prefer-standby`,
      SECRET_KEY: KEY,
      ADMIN_KEY: "k".repeat(40),
      DELIVERY_PROXY: "http://user:password@proxy.example",
    };
    const inFiles = Object.entries(secrets).map(([name, value]) => [`${name}_FILE`, file(`${value}\n`)]);
    expect(readConfig(Object.fromEntries(inFiles))).toEqual(readConfig(secrets));
  });

  test("cannot be set in both ways, missing or empty; the error names each variable and no secret", () => {
    const empty = file("\n");
    const message = refusal({
      DATABASE_URL: DATABASE,
      DATABASE_URL_FILE: file(DATABASE),
      SECRET_KEY_FILE: "/nowhere/key",
      ADMIN_KEY_FILE: empty,
    });
    expect(message.split("\n")).toEqual([
      "DATABASE_URL and DATABASE_URL_FILE are both set; set one of them",
      "SECRET_KEY_FILE: cannot read the file /nowhere/key (ENOENT); name a file that this user can read",
      `ADMIN_KEY_FILE: the file ${empty} is empty; write the value into it`,
    ]);
  });
});
