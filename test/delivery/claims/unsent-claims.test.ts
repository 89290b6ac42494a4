import pino from "pino";
import { expect, test } from "vitest";
import { createUnsentClaims } from "../../../src/delivery/claims/unsent-claims.ts";
import { claimsOf } from "../sender-parts.ts";

test.each([
  ["an outage, which other parts log", "Connection terminated unexpectedly", []],
  ["another error, which is logged", "permission denied", ["permission denied"]],
])(
  "claims whose release fails for %s end for their owners, and the worker's id is retired",
  async (_why, message, logged) => {
    const told: unknown[] = [];
    const lines: string[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(JSON.parse(line).err.message) });
    const lease = {
      settle: (id: number, n = 1) => told.push(`settle ${id} ${n}`),
      retire: (id: number) => told.push(`retire ${id}`),
    };
    const fail = () => Promise.reject(new Error(message));
    const owner = { returned: () => void told.push("returned") };
    const unsent = createUnsentClaims({ log, lease, release: fail, endFiltered: fail });
    await unsent.release(claimsOf(1, 2, { workerId: 7 }).map((delivery) => ({ delivery, owner })));
    expect(told).toEqual(["retire 7", "settle 7 2", "returned", "returned"]);
    expect(lines).toEqual(logged);
  },
);
