import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import type { Certificate } from "../../demo/certificates.ts";
import type { Db } from "../../src/lib/pg/database.ts";
import { rows } from "../../src/lib/pg/database.ts";

/** One request as the ledger keeps it: little, since there may be hundreds of thousands. */
export interface Entry {
  deliveryId: string;
  /** When its headers had come, in milliseconds since 1970. */
  at: number;
}

/** An HTTPS receiver that keeps account of every request. */
export type Ledger = Awaited<ReturnType<typeof startLedger>>;

/** The status for a path, for which request with its delivery's id it is, from 1, and for that id. */
export type LedgerReply = (path: string, nth: number, deliveryId: string) => number | Promise<number>;

export async function startLedger(certificate: Certificate, delayMs: number, reply: LedgerReply = () => 200) {
  const entries: Entry[] = [];
  const seen = new Map<string, number>();
  const server = createServer({ ...certificate, keepAlive: true }, (request, response) => {
    const deliveryId = String(request.headers["x-service-webhook-id"]);
    const nth = (seen.get(deliveryId) ?? 0) + 1;
    seen.set(deliveryId, nth);
    entries.push({ deliveryId, at: Date.now() });
    // A sender that is killed takes its connection along.
    request.on("error", () => {}).resume();
    setTimeout(async () => {
      const status = await reply(request.url ?? "", nth, deliveryId);
      response.writeHead(status).end("noted");
    }, delayMs);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    /** `https://localhost:port`. */
    url: `https://localhost:${(server.address() as AddressInfo).port}`,
    entries,
    async close(): Promise<void> {
      server.closeAllConnections();
      await promisify(server.close.bind(server))();
    },
  };
}

/**
 * A busy machine may take the processor from a worker between the recorded start of an attempt and that of its duration. Less than the
 * shortest retry delay of the fault tests, 200 ms.
 */
const TOLERANCE_MS = 150;

/**
 * Gives each recorded attempt the request it was: the last that came while it ran.
 *
 * @returns the number of attempts, the requests that none accounts for, and the number of attempts recorded with a status that no
 * receiver got a request for, which must be 0
 */
export async function reconcile(db: Db, ledgers: readonly Ledger[]) {
  const byDelivery = new Map<string, Entry[]>();
  for (const entry of ledgers.flatMap(({ entries }) => entries)) {
    const known = byDelivery.get(entry.deliveryId);
    if (known) known.push(entry);
    else byDelivery.set(entry.deliveryId, [entry]);
  }
  const attempts = await rows<{ id: string; started: Date; duration: number; answered: boolean }>(
    db,
    `select delivery_id as id, started, duration_ms as duration, status is not null as answered
      from all_attempts order by delivery_id, number`,
  );
  let invented = 0;
  for (const { id, started, duration, answered } of attempts) {
    const from = started.getTime() - TOLERANCE_MS;
    const to = started.getTime() + duration + TOLERANCE_MS;
    const entries = byDelivery.get(id) ?? [];
    const index = entries.findLastIndex(({ at }) => at >= from && at <= to);
    if (index >= 0) entries.splice(index, 1);
    else if (answered) invented += 1;
  }
  return { recorded: attempts.length, repeats: [...byDelivery.values()].flat(), invented };
}
