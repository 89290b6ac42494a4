import type { Db } from "../../../src/lib/pg/database.ts";

/**
 * How a call fails: its n-th statement, counted from 0, is not run, and a transaction is rolled back; or all of it is
 * done, and only the answer is lost. Null: it does not fail.
 */
export type Fault = number | "answer lost" | null;

/** A call that was made. Without an answer the caller does not know whether it is done. */
export type Call<T> =
  | { heard: true; done: true; answer: T }
  | { heard: false; done: boolean; answer?: never };

const connectionLost = () => Object.assign(new Error("connection lost"), { code: "ECONNRESET" });

/** Fails from the n-th statement on. */
function breaking(on: Db, n: number): Db {
  let left = n;
  const wrap = (target: Db): Db =>
    new Proxy(target, {
      get(from, property, receiver) {
        if (property === "raw") {
          return (...args: Parameters<Db["raw"]>) => {
            left -= 1;
            if (left < 0) throw connectionLost();
            return from.raw(...args);
          };
        }
        if (property === "transaction") {
          return (work: (trx: Db) => Promise<unknown>) => from.transaction((trx) => work(wrap(trx as Db)));
        }
        return Reflect.get(from, property, receiver);
      },
    });
  return wrap(on);
}

/** Calls with a fault. A call of fewer statements than the fault's ends as usual. */
export async function call<T>(on: Db, fault: Fault, work: (on: Db) => Promise<T>): Promise<Call<T>> {
  try {
    const answer = await work(typeof fault === "number" ? breaking(on, fault) : on);
    return fault === "answer lost" ? { heard: false, done: true } : { heard: true, done: true, answer };
  } catch (error) {
    if ((error as { code?: string }).code !== "ECONNRESET") throw error;
    return { heard: false, done: false };
  }
}
