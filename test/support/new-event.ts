import { randomBytes, randomUUID } from "node:crypto";
import type { NewEvent } from "../../src/events/publish.ts";

/** An event of type 1 that was not published before, with other values where given. */
export function anEvent(values: Partial<NewEvent> = {}): NewEvent {
  return {
    apiKeyId: randomUUID(),
    idempotencyKey: randomUUID(),
    requestSha256: randomBytes(32).toString("hex"),
    process: 1,
    userId: "u",
    occurred: null,
    payload: "{}",
    ...values,
  };
}
