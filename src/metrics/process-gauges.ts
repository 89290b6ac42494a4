import { X509Certificate } from "node:crypto";
import type { Meter } from "@opentelemetry/api";
import type { Db } from "../lib/pg/index.ts";

/** Measures the memory and the processor time of this process. */
export function observeProcess(meter: Meter): void {
  meter
    .createObservableUpDownCounter("process.memory.usage", {
      unit: "By",
      description: "Resident memory of the process.",
    })
    .addCallback((result) => result.observe(process.memoryUsage.rss()));
  meter
    .createObservableCounter("process.cpu.time", {
      unit: "s",
      description: "Processor time that the process has used.",
    })
    .addCallback((result) => {
      const { user, system } = process.cpuUsage();
      result.observe(user / 1e6, { "cpu.mode": "user" });
      result.observe(system / 1e6, { "cpu.mode": "system" });
    });
  meter
    .createObservableGauge("process.uptime", { unit: "s", description: "Time since the process started." })
    .addCallback((result) => result.observe(process.uptime()));
}

/** The part of knex's pool that the gauges read. */
interface Pool {
  max: number;
  numUsed(): number;
  numFree(): number;
  numPendingAcquires(): number;
}

/** Measures the connections of a pool, and who waits for one. */
export function observePool(meter: Meter, db: Db): void {
  const pool = db.client.pool as Pool;
  const name = { "db.client.connection.pool.name": "webhook-service" };
  meter
    .createObservableUpDownCounter("db.client.connection.count", {
      unit: "{connection}",
      description: "Connections of the pool to the database, by state.",
    })
    .addCallback((result) => {
      result.observe(pool.numUsed(), { ...name, "db.client.connection.state": "used" });
      result.observe(pool.numFree(), { ...name, "db.client.connection.state": "idle" });
    });
  meter
    .createObservableUpDownCounter("db.client.connection.max", {
      unit: "{connection}",
      description: "The most connections of the pool: DATABASE_POOL_SIZE.",
    })
    .addCallback((result) => result.observe(pool.max, name));
  meter
    .createObservableUpDownCounter("db.client.connection.pending_requests", {
      unit: "{request}",
      description: "Statements that wait for a connection of the pool.",
    })
    .addCallback((result) => result.observe(pool.numPendingAcquires(), name));
}

/** Measures how far the replica is behind. @param lagMs returns milliseconds; null while that is unknown */
export function observeReplicaLag(meter: Meter, lagMs: () => number | null | undefined): void {
  meter
    .createObservableGauge("webhook.database.replica.lag", {
      unit: "s",
      description: "How far the replica in DATABASE_READ_URL is behind its primary.",
    })
    .addCallback((result) => {
      const lag = lagMs();
      if (typeof lag === "number") result.observe(lag / 1_000);
    });
}

/** Measures how long the certificate of the listeners stays valid. @param cert returns the PEM in use; its first certificate counts */
export function observeCertificate(meter: Meter, cert: () => string): void {
  meter
    .createObservableGauge("webhook.tls.certificate.remaining", {
      unit: "s",
      description: "Time until the certificate in TLS_CERT expires; negative once it has.",
    })
    .addCallback((result) => {
      // Here and not at the start, where the listener says what is wrong with a certificate.
      const expires = new X509Certificate(cert()).validToDate.getTime();
      result.observe((expires - Date.now()) / 1_000);
    });
}
