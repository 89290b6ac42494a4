import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { ConfigError } from "../../src/config/config-error.ts";

const KEY = Buffer.alloc(32, 7).toString("base64");
const DATABASE = "postgres://user:telling-password@db.example:5432/webhook";

function refusal(environment: Record<string, string>): string {
  try {
    readConfig(environment);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as ConfigError).message;
  }
  throw new Error("the settings were taken");
}

describe("the settings", () => {
  test("have defaults for a service on embedded parts", () => {
    expect(readConfig({})).toMatchObject({
      role: "all",
      httpPort: 8080,
      grpcPort: 9090,
      dataDir: ".data",
      database: { url: undefined },
      temporal: { external: false },
      dispatch: { intervalMs: 60_000, retryInitialDelayMs: 60_000, retryBackoffCoefficient: 5 },
      delivery: { timeoutMs: 15_000, allowedNetworks: [], allowedPorts: [] },
    });
  });

  test("deliver in one process with ROLE=worker, and beside the API in one for each other core, in one to four", () => {
    const beside = Math.min(4, Math.max(1, availableParallelism() - 1));
    expect(readConfig({}).delivery.processes).toBe(beside);
    const shared = { DATABASE_URL: DATABASE, SECRET_KEY: KEY, TEMPORAL_ADDRESS: "temporal.example:7233" };
    expect(readConfig({ ...shared, ROLE: "worker" }).delivery.processes).toBe(1);
    expect(readConfig({ DELIVERY_PROCESSES: "7" }).delivery.processes).toBe(7);
  });

  test("take lengths of time in their usual units, and an empty value as not set", () => {
    const config = readConfig({
      DISPATCH_INTERVAL: "5m",
      RETRY_INITIAL_DELAY: "1.5s",
      DELIVERY_TIMEOUT: "900ms",
      LOG_LEVEL: "",
    });
    expect(config.dispatch).toMatchObject({ intervalMs: 300_000, retryInitialDelayMs: 1_500 });
    expect(config.delivery.timeoutMs).toBe(900);
    expect(config.logLevel).toBe("info");
  });

  test("start a run at least every hour if its pumps linger, so that its history stays within Temporal's limit", () => {
    const DISPATCH_INTERVAL = "24h";
    expect(readConfig({ DISPATCH_INTERVAL, DISPATCH_ON_PUBLISH: "true" }).dispatch.intervalMs).toBe(
      3_600_000,
    );
    expect(readConfig({ DISPATCH_INTERVAL }).dispatch.intervalMs).toBe(86_400_000);
  });

  test("are refused if two listeners of the process have the same port", () => {
    expect(refusal({ HTTP_PORT: "9090" })).toBe(
      "HTTP_PORT and GRPC_PORT are both 9090: set them to different ports",
    );
    expect(refusal({ HTTP_PORT: "8000", METRICS_PORT: "8000" })).toBe(
      "HTTP_PORT and METRICS_PORT are both 8000: set them to different ports",
    );
    expect(refusal({ METRICS_PORT: "9090" })).toContain("GRPC_PORT and METRICS_PORT are both 9090");
    // 0 selects free ports, and a worker has no port of gRPC.
    readConfig({ HTTP_PORT: "0", GRPC_PORT: "0", METRICS_PORT: "0" });
    const shared = { DATABASE_URL: DATABASE, SECRET_KEY: KEY, TEMPORAL_ADDRESS: "temporal.example:7233" };
    readConfig({ ...shared, ROLE: "worker", HTTP_PORT: "9090" });
  });

  test("take networks that the address guard lets through", () => {
    const { delivery } = readConfig({ DELIVERY_ALLOWED_NETWORKS: "10.0.0.0/8, fd00::/8" });
    expect(delivery.allowedNetworks.map(([address, bits]) => `${address}/${bits}`)).toEqual([
      "10.0.0.0/8",
      "fd00::/8",
    ]);
  });

  test("take blocked ports that deliveries may reach", () => {
    const { delivery } = readConfig({ DELIVERY_ALLOWED_PORTS: "6379, 9200" });
    expect(delivery.allowedPorts).toEqual([6379, 9200]);
  });

  test("take former keys as base64 or hex, separated by commas, and limits for callers", () => {
    const config = readConfig({
      SECRET_KEY_PREVIOUS: `${KEY}, ${"0f".repeat(32)}`,
      TRUST_PROXY: "10.0.0.0/8",
    });
    expect(config.previousSecretKeys).toEqual([Buffer.from(KEY, "base64"), Buffer.alloc(32, 0x0f)]);
    expect(config.limits.trustedProxies).toHaveLength(1);
    expect(readConfig({}).limits).toEqual({
      requestsPerMinute: 0,
      wrongKeysPerMinute: 60,
      maxWebhooks: 10_000,
      maxApiKeys: 10_000,
      maxInstalledApps: 10_000,
      trustedProxies: [],
      maxConnections: 10_000,
      maxConnectionsPerAddress: 500,
      http2MaxStreams: 200,
      http2ResetsPerSecond: 100,
      requestIdleMs: 60_000,
    });
  });

  test.each([
    ["SECRET_KEY_PREVIOUS", "too-short"],
    ["RATE_LIMIT_PER_MINUTE", "-1"],
    ["WRONG_KEYS_PER_MINUTE", "some"],
    ["TRUST_PROXY", "true"],
    ["MAX_WEBHOOKS", "0"],
    ["MAX_API_KEYS", "0"],
    ["MAX_INSTALLED_APPS", "0"],
    ["ROLE", "boss"],
    ["HTTP_PORT", "http"],
    ["HTTP_PORT", "70000"],
    ["GRPC_PORT", "-1"],
    ["DISPATCH_INTERVAL", "60"],
    ["DISPATCH_INTERVAL", "10ms"],
    ["RETRY_BACKOFF_COEFFICIENT", "0.5"],
    ["DELIVERY_TIMEOUT", "soon"],
    ["DELIVERY_ALLOWED_NETWORKS", "10.0.0.0"],
    ["DELIVERY_ALLOWED_PORTS", "0"],
    ["DELIVERY_ALLOWED_PORTS", "65536"],
    ["DELIVERY_ALLOWED_PORTS", "redis"],
    ["DELIVERY_ALLOWED_NETWORKS", "10.0.0.0/99"],
    ["DELIVERY_PROXY", "proxy.example:3128"],
    ["DELIVERY_PROXY", "socks5h://proxy.example"],
    ["DELIVERY_PROXY", "http://proxy.example/?x=1"],
    ["DELIVERY_PROXY", "socks5://user@proxy.example"],
    ["TEMPORAL_UI_URL", "not a url"],
    ["TEMPORAL_UI_URL", "temporal-ui.example:8080"],
    ["TEMPORAL_DEPLOYMENT_NAME", "webhook.service"],
    ["TEMPORAL_WORKER_BUILD_ID", "a build"],
    ["LOG_LEVEL", "loud"],
    ["SMTP_URL", "https://smtp.example"],
    ["SMTP_URL", "smtp://user:100%@smtp.example"],
    ["SMTP_URL", "smtp://smtp.example/?tls.rejectUnauthorized=false"],
    ["SMTP_FROM", "Webhooks"],
    ["NOTICE_EMAILS", "ops@example.com, dev"],
    ["NOTICE_EMAIL_INTERVAL", "0s"],
  ])("%s=%s is refused by name", (name, value) => {
    expect(refusal({ [name]: value })).toContain(name);
  });

  test.each([
    ["http://proxy.example", { protocol: "http", host: "proxy.example", port: 80, credentials: undefined }],
    [
      "https://us%20er:p%40ss@[2001:DB8::1]:8443/",
      {
        protocol: "https",
        host: "2001:db8::1",
        port: 8_443,
        credentials: { username: "us er", password: "p@ss" },
      },
    ],
    [
      "socks5://Proxy.example",
      { protocol: "socks5", host: "proxy.example", port: 1_080, credentials: undefined },
    ],
  ])("take the proxy %s", (url, proxy) => {
    expect(readConfig({ DELIVERY_PROXY: url }).delivery.proxy).toEqual(proxy);
  });

  test("take where notices are e-mailed to, all of it or nothing", () => {
    const all = {
      SMTP_URL: "smtps://user:secret@smtp.example",
      SMTP_FROM: "webhooks@example.com",
      NOTICE_EMAILS: "ops@example.com, dev@example.com",
    };
    expect(readConfig({}).noticeMail).toBeUndefined();
    expect(readConfig(all).noticeMail).toEqual({
      smtpUrl: "smtps://user:secret@smtp.example",
      from: "webhooks@example.com",
      to: ["ops@example.com", "dev@example.com"],
      intervalMs: 900_000,
    });
    for (const name of Object.keys(all))
      expect(refusal({ ...all, [name]: "" })).toContain(
        "only some of SMTP_URL, SMTP_FROM and NOTICE_EMAILS are set",
      );
  });

  test("take the version of the workers, all of it or nothing", () => {
    const both = {
      TEMPORAL_DEPLOYMENT_NAME: "shop/webhook-service",
      TEMPORAL_WORKER_BUILD_ID: "1.4.0-rc.1",
    };
    expect(readConfig({}).dispatch.deployment).toBeUndefined();
    expect(readConfig(both).dispatch.deployment).toEqual({
      name: "shop/webhook-service",
      buildId: "1.4.0-rc.1",
    });
    for (const name of Object.keys(both))
      expect(refusal({ ...both, [name]: "" })).toContain(
        "only one of TEMPORAL_DEPLOYMENT_NAME and TEMPORAL_WORKER_BUILD_ID is set",
      );
  });

  test("name every wrong value at once", () => {
    const message = refusal({ HTTP_PORT: "x", DELIVERY_TIMEOUT: "y", ROLE: "z" });
    for (const name of ["HTTP_PORT", "DELIVERY_TIMEOUT", "ROLE"]) expect(message).toContain(name);
  });

  test("never repeat a secret in their errors", () => {
    expect(refusal({ SECRET_KEY: "telling-secret" })).not.toContain("telling-secret");
    expect(refusal({ SECRET_KEY_PREVIOUS: `${KEY},telling-secret` })).not.toMatch(/telling-secret|AAAA/);
    expect(refusal({ SMTP_URL: "smtp://user:telling-password@mail/x" })).not.toContain("telling-password");
    expect(refusal({ ADMIN_KEY: "telling key" })).not.toContain("telling key");
    expect(refusal({ DATABASE_URL: "mysql://user:telling-password@db/x" })).not.toContain("telling-password");
    for (const url of [
      "ftp://user:telling@proxy",
      "http://user:telling@proxy/path",
      "http://a:telling%@proxy",
    ]) {
      expect(refusal({ DELIVERY_PROXY: url })).toContain("DELIVERY_PROXY");
      expect(refusal({ DELIVERY_PROXY: url })).not.toContain("telling");
    }
  });

  test("take an ADMIN_KEY of 32 characters at least, and say how to make one", () => {
    const message = refusal({ ADMIN_KEY: "k".repeat(31) });
    expect(message).toContain(
      "ADMIN_KEY: the key has 31 characters; it must be 32 to 200 visible ASCII characters",
    );
    expect(message).toContain("openssl rand -hex 24");
    expect(readConfig({ ADMIN_KEY: "k".repeat(32) }).adminKey).toBe("k".repeat(32));
  });

  test("of processes that share parts must say where those are", () => {
    expect(refusal({ ROLE: "worker" })).toMatch(/DATABASE_URL is missing[\s\S]*TEMPORAL_ADDRESS is missing/);
    expect(refusal({ ROLE: "api" })).toMatch(/DATABASE_URL is missing/);
    expect(refusal({ DATABASE_DIRECT_URL: DATABASE })).toMatch(/DATABASE_URL is missing/);
    expect(refusal({ DATABASE_URL: DATABASE })).toMatch(/SECRET_KEY is missing/);
    expect(() => readConfig({ ROLE: "api", DATABASE_URL: DATABASE, SECRET_KEY: KEY })).not.toThrow();
  });

  test("of TLS go together", () => {
    expect(refusal({ TLS_CERT: "/nowhere.pem" })).toMatch(/TLS_CERT and TLS_KEY is set: set both/);
    expect(refusal({ TLS_CERT: "/nowhere.pem", TLS_KEY: "/nowhere.key" })).toMatch(/TLS_CERT: cannot read/);
  });

  test("take Temporal's own variables to mean that it is not embedded", () => {
    const shared = { DATABASE_URL: DATABASE, SECRET_KEY: KEY, ROLE: "worker" };
    expect(readConfig({ ...shared, TEMPORAL_ADDRESS: "temporal:7233" }).temporal.external).toBe(true);
    expect(readConfig({ ...shared, TEMPORAL_PROFILE: "cloud" }).temporal.external).toBe(true);
  });
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
    const fromFiles = readConfig({
      DATABASE_URL_FILE: file(`${DATABASE}\n`),
      DATABASE_READ_URL_FILE: file(`${DATABASE}-replica\n`),
      SECRET_KEY_FILE: file(`${KEY}\n`),
      ADMIN_KEY_FILE: file(`${"k".repeat(40)}\n`),
      DELIVERY_PROXY_FILE: file("http://user:password@proxy.example\n"),
    });
    expect(fromFiles).toEqual(
      readConfig({
        DATABASE_URL: DATABASE,
        DATABASE_READ_URL: `${DATABASE}-replica`,
        SECRET_KEY: KEY,
        ADMIN_KEY: "k".repeat(40),
        DELIVERY_PROXY: "http://user:password@proxy.example",
      }),
    );
  });

  test("cannot be set in both ways, missing or empty; the error names the variable and no secret", () => {
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
