import { randomBytes } from "node:crypto";
import { onTestFinished } from "vitest";
import { type ServiceOverrides, startService } from "../../src/app/service.ts";
import { readConfig } from "../../src/config/config.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { quietRuntime } from "../support/test-service.ts";

export const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
export const READY = { status: 200, reasons: [] };

/**
 * Starts a service on a database of the test's own, until the end of the test. Its ports are known before it has started, and
 * `giveUp` ends the start, or the shutdown delay.
 */
export async function startedService(settings: Record<string, string>, overrides: ServiceOverrides = {}) {
  const [{ address: TEMPORAL_ADDRESS }] = await Promise.all([part("temporal"), part("workflows")]);
  const database = await createTestDatabase();
  const giveUp = new AbortController();
  const [httpPort, grpcPort] = [await anyPort(), await anyPort()];
  quietRuntime();
  const starting = startService(
    readConfig({
      HOST: "127.0.0.1",
      HTTP_PORT: String(httpPort),
      GRPC_PORT: String(grpcPort),
      LOG_LEVEL: "silent",
      SECRET_KEY: randomBytes(32).toString("base64"),
      ADMIN_KEY: adminKey,
      TEMPORAL_ADDRESS,
      DATABASE_URL: database.url,
      ...settings,
    }),
    { environment: { TEMPORAL_ADDRESS }, giveUp: giveUp.signal, ...overrides },
  );
  onTestFinished(async () => {
    giveUp.abort();
    await starting.then(
      (service) => service.stop(),
      () => {},
    );
    await database.drop();
  });
  const url = `http://127.0.0.1:${httpPort}`;
  return { starting, url, httpPort, grpcPort, giveUp, readiness: () => readinessOf(url) };
}

/** The status of `/readyz` and its reasons; 0 if nobody listens. */
export async function readinessOf(url: string): Promise<{ status: number; reasons: string[] }> {
  const response = await fetch(`${url}/readyz`).catch(() => undefined);
  const { reasons = [] } = ((await response?.json()) ?? {}) as { reasons?: string[] };
  return { status: response?.status ?? 0, reasons };
}
