import { randomBytes, randomUUID } from "node:crypto";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { type DeliveryStateName, FINAL_STATES } from "../../src/log/deliveries.ts";
import { CHANGE } from "../../src/queue/rollup-deltas.ts";
import { ensurePartitions, timeOfId } from "../../src/schema/partitions.ts";

/** A recorded attempt. */
export interface StoredAttempt {
  /** Now unless given. */
  started?: Date;
  /** 5 unless given. */
  durationMs?: number;
  status?: number | null;
  error?: string | null;
  responseStart?: string | null;
}

/** A delivery to be stored as it stands, without the calls that would have brought it there. */
export interface Stored {
  webhookId: bigint | number | string;
  /** Pending unless given. */
  state?: DeliveryStateName;
  /** A fresh UUIDv7 of `created` unless given. */
  id?: string;
  /** Now unless given; ignored when there is an id. */
  created?: Date;
  /** An id with the same first eight bytes unless given, as each event has. */
  eventId?: string;
  /** As many as there are in `tried` unless given. */
  attempts?: number;
  /** Its recorded attempts, in order, to be stored too; the last one of an ended delivery is the one that ended it. */
  tried?: readonly StoredAttempt[];
  /** It ended without an attempt, so that all of `tried` are earlier ones. */
  endedUntried?: boolean;
  roundStart?: number;
  claims?: number;
  runId?: number | null;
  retryAt?: Date;
  finished?: Date;
  reason?: string | null;
}

/** A UUIDv7 of a moment; `n` tells those of one millisecond apart. */
export function idAt(moment: Date, n = randomBytes(6).readUIntBE(0, 6)): string {
  const ms = moment.getTime().toString(16).padStart(12, "0");
  return `${ms.slice(0, 8)}-${ms.slice(8)}-7000-8000-${n.toString(16).padStart(12, "0")}`;
}

/** An id with the same first eight bytes: those of an event and its deliveries. */
export function idBeside(id: string): string {
  return `${id.slice(0, 18)}${randomUUID().slice(18)}`;
}

/** Stores deliveries, each in the table of its state, with what the rollups count; answers their ids in order. */
export async function storeDeliveries(db: Db, deliveries: readonly Stored[]): Promise<string[]> {
  const made = deliveries.map((delivery) => ({
    ...delivery,
    id: delivery.id ?? idAt(delivery.created ?? new Date()),
    state: delivery.state ?? ("pending" as const),
  }));
  await ensurePartitions(
    db,
    30,
    made.map(({ id }) => timeOfId(id)),
  );
  const common = (one: (typeof made)[number]) => ({
    id: one.id,
    event_id: one.eventId ?? idBeside(one.id),
    webhook_id: String(one.webhookId),
    run_id: one.runId ?? null,
    attempts: one.attempts ?? one.tried?.length ?? 0,
  });
  const inState = (...states: DeliveryStateName[]) => made.filter(({ state }) => states.includes(state));
  const insert = async (table: string, all: object[]) => {
    if (all.length > 0) await db.batchInsert(table, all, 500);
  };
  const [worker] = inState("delivering").length > 0 ? await aWorker(db) : [];
  await insert(
    "queue",
    inState("pending", "delivering").map((one) => ({
      ...common(one),
      claims: one.claims ?? 0,
      claimed_by: one.state === "delivering" ? worker?.id : null,
    })),
  );
  await insert(
    "retries",
    inState("retrying").map((one) => ({
      ...common(one),
      round_start: one.roundStart ?? 0,
      due: one.retryAt ?? new Date(),
      claims: one.claims ?? 0,
    })),
  );
  const ended = inState(...FINAL_STATES);
  const last = (one: Stored) => (one.endedUntried ? undefined : one.tried?.at(-1));
  await insert(
    "deliveries",
    ended.map((one) => ({
      ...common(one),
      outcome: one.state,
      round_start: one.roundStart ?? 0,
      finished: one.finished ?? new Date(),
      reason: one.reason ?? null,
      ...columnsOf(last(one)),
    })),
  );
  const earlier = made.flatMap((one) => {
    const { tried = [] } = one;
    const count = FINAL_STATES.includes(one.state) && !one.endedUntried ? tried.length - 1 : tried.length;
    return tried.slice(0, Math.max(0, count)).map((attempt, index) => ({ one, attempt, number: index + 1 }));
  });
  await insert(
    "attempts",
    earlier.map(({ one, attempt, number }) => ({ delivery_id: one.id, number, ...columnsOf(attempt) })),
  );
  await insert("rollup_deltas", [
    ...ended.map((one) => {
      const change = CHANGE[one.state as keyof typeof CHANGE];
      return deltaAt(one.finished ?? new Date(), one, change, last(one)?.durationMs ?? (last(one) ? 5 : -1));
    }),
    ...earlier.map(({ one, attempt }) =>
      deltaAt(attempt.started ?? new Date(), one, CHANGE.retrying, attempt.durationMs ?? 5),
    ),
  ]);
  return made.map(({ id }) => id);
}

/** Makes a stored delivery what the changes say, in the table of its new state; its attempts stay where they are. */
export async function changeDelivery(db: Db, id: string, changes: Partial<Stored>): Promise<void> {
  await db.transaction(async (trx) => {
    const [was] = await rows<{ event_id: string; webhook_id: string; attempts: number; round_start: number }>(
      trx,
      "select event_id, webhook_id, attempts, round_start from all_deliveries where id = :id::uuid",
      { id },
    );
    if (!was) throw new Error(`there is no delivery ${id}`);
    for (const table of ["queue", "retries", "deliveries"]) await trx(table).where({ id }).delete();
    const { event_id: eventId, webhook_id: webhookId, attempts, round_start: roundStart } = was;
    await storeDeliveries(trx, [{ id, eventId, webhookId, attempts, roundStart, ...changes }]);
  });
}

function columnsOf(attempt: StoredAttempt | undefined): object {
  if (!attempt) return {};
  return {
    started: attempt.started ?? new Date(),
    duration_ms: attempt.durationMs ?? 5,
    status: attempt.status ?? null,
    error: attempt.error ?? null,
    response_start: attempt.responseStart ?? null,
  };
}

function deltaAt(moment: Date, { webhookId }: Stored, change: number, durationMs: number): object {
  return {
    minute: new Date(Math.floor(moment.getTime() / 60_000) * 60_000),
    webhook_ids: [String(webhookId)],
    changes: [change],
    durations_ms: [durationMs],
  };
}

/** A worker whose lease lasts longer than the test. */
function aWorker(db: Db): Promise<{ id: number }[]> {
  return rows(
    db,
    "insert into workers (name, task_queue, lease_until) values ('test', 'test', now() + interval '1 day') returning id",
  );
}
