import { Client, Connection } from "@temporalio/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SEARCH_ATTRIBUTES } from "../../src/temporal/search-attributes.ts";
import { type Cluster, startCluster } from "../faults/cluster.ts";
import { checkAttempts, outcomes, removeAll, untilAllFinal } from "../faults/parts.ts";
import { until } from "../support/wait.ts";
import { POSTGRES_PROGRAMS } from "./own-postgres.ts";
import { describeWith } from "./programs.ts";
import { startTemporalCluster, TEMPORAL_PROGRAMS, type TemporalCluster } from "./temporal-cluster.ts";

const EVENTS = 1_000;
/** One delivery in ten fails once. */
const FAILING_PART = 10;

describeWith(
  [...TEMPORAL_PROGRAMS, ...POSTGRES_PROGRAMS],
  "the Temporal cluster of docker-compose.yml",
  () => {
    let temporal: TemporalCluster;
    let cluster: Cluster;
    let client: Client;

    beforeAll(async () => {
      temporal = await startTemporalCluster();
      cluster = await startCluster({ TEMPORAL_ADDRESS: temporal.address, TEMPORAL_NAMESPACE: "default" });
      client = new Client({ connection: await Connection.connect({ address: temporal.address }) });
    });
    afterAll(async () => {
      await client?.connection.close();
      await cluster?.end();
      await temporal?.end();
    });

    async function startStorm() {
      await removeAll(cluster.db);
      const ledger = await cluster.ledger(5, (_path, nth, id) =>
        nth === 1 && Number.parseInt(id.slice(-8), 16) % FAILING_PART === 0 ? 503 : 200,
      );
      for (const path of ["one", "two", "three"]) await cluster.register(`${ledger.url}/${path}`);
      return { ledger, publishing: cluster.publisher.publish(EVENTS) };
    }

    /** Every delivery arrived once, failed ones twice, and the log says the same as the receiver. */
    async function expectDelivered(ledger: Awaited<ReturnType<typeof startStorm>>["ledger"], events: number) {
      await untilAllFinal(cluster.db);
      await checkAttempts(cluster.db);
      const found = await outcomes(cluster.db);
      expect(found.map(({ state, attempts }) => [state, attempts])).toEqual([
        ["delivered", 1],
        ["delivered", 2],
      ]);
      expect(found.reduce((sum, { n }) => sum + n, 0)).toBe(3 * events);
      expect(new Set(ledger.entries.map(({ deliveryId }) => deliveryId)).size).toBe(3 * events);
      expect(ledger.entries).toHaveLength(found.reduce((sum, { attempts, n }) => sum + attempts * n, 0));
    }

    test("dispatches by its schedule, retries, describes its runs and finds them by their attempts", async () => {
      const worker = await cluster.startWorker();
      const { ledger, publishing } = await startStorm();
      await publishing;
      await expectDelivered(ledger, EVENTS);
      const found = async () => {
        const runs = [];
        for await (const run of client.workflow.list({ query: "DeliveryAttempts > 0" })) runs.push(run);
        return runs.length;
      };
      await expect.poll(found).toBeGreaterThan(0);
      await worker.end("SIGTERM");
    });

    test("a frontend that is killed and restarted during a storm costs no delivery and no attempt", async () => {
      const worker = await cluster.startWorker();
      const readiness = async () => (await fetch(`http://127.0.0.1:${worker.httpPort}/readyz`)).status;
      const { ledger, publishing } = await startStorm();
      await until(() => ledger.entries.length > EVENTS / 2);
      await temporal.kill("frontend");
      await publishing;
      await expect.poll(readiness).toBe(503);
      // Accepted all the same, and dispatched once Temporal is back.
      await cluster.publisher.publish(EVENTS);
      await temporal.start("frontend");
      await expectDelivered(ledger, 2 * EVENTS);
      await expect.poll(readiness).toBe(200);
      await worker.end("SIGTERM");
    });

    test("runs continue when the search attributes are removed, which the services of a cluster learn at different times", async () => {
      const worker = await cluster.startWorker();
      const { operatorService } = client.connection;
      const searchAttributes = Object.keys(SEARCH_ATTRIBUTES);
      const { ledger, publishing } = await startStorm();
      await operatorService.removeSearchAttributes({ namespace: "default", searchAttributes });
      await publishing;
      await expectDelivered(ledger, EVENTS);
      const open = async () => (await client.workflow.count("ExecutionStatus = 'Running'")).count;
      await expect.poll(open).toBe(0);
      await worker.end("SIGTERM");
    });
  },
);
