import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { RegisterEventTypesRequestSchema } from "../../gen/webhook/v1/event_type_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { hostileSets } from "../support/hostile-sets.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { startFaultParts } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

/** How often each set is sent before memory is looked at for the first time, and afterwards. */
const ROUNDS = 2;
const CALLERS = 20;
const PROBE_INTERVAL_MS = 50;
const RETRY_AFTER_MS = 100;
const MIB = 1_048_576;
/** The memory that the second half of the calls may take beyond that of the first, in bytes. */
const MAX_GROWTH = 100 * MIB;

// Three minutes, most of them in threads of one registration after the other. `npm test` sends each set once.
test.runIf(FULL_SIZE)(
  "hostile sets of event types, 20 at a time, are refused; the service answers meanwhile, and its memory does not grow",
  async () => {
    const parts = await startFaultParts();
    onTestFinished(parts.end);
    const service = await startServiceProcess({ ...parts.environment, HEARTBEAT_TIMEOUT: "60s" });
    onTestFinished(async () => void (await service.end("SIGTERM")));
    const errors: string[] = [];
    service.process.stderr?.on("data", (chunk) => errors.push(String(chunk)));
    const keys = createClient(ApiKeyService, keyedTransport(service.grpcPort, parts.adminKey));
    const { secret } = await keys.createApiKey({
      name: "hostile",
      permissions: [Permission.MANAGE_EVENT_TYPES],
    });
    const sets = Object.entries(hostileSets()).map(([what, fileDescriptorSet]) => {
      const request = create(RegisterEventTypesRequestSchema, { fileDescriptorSet });
      return { what, body: toBinary(RegisterEventTypesRequestSchema, request) as Uint8Array<ArrayBuffer> };
    });
    const residentBytes = () =>
      1_024 * Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${service.pid}/status`, "utf8"))?.[1]);

    /** Sends a set, again and again while it is refused because others wait. */
    async function send({ what, body }: (typeof sets)[number]): Promise<void> {
      for (;;) {
        const response = await fetch(
          `http://127.0.0.1:${service.httpPort}/webhook.v1.EventTypeService/RegisterEventTypes`,
          { method: "POST", headers: { "content-type": "application/proto", "x-service-key": secret }, body },
        );
        const text = await response.text();
        if (response.status !== 429) {
          expect([what, response.status, text.slice(0, 500)]).toEqual([what, 400, expect.any(String)]);
          return;
        }
        await wait(RETRY_AFTER_MS);
      }
    }

    let peakBytes = 0;
    let longestMs = 0;
    /** Sends each set so often, by twenty callers. Answers the most memory that the service had meanwhile. */
    async function attack(rounds: number): Promise<number> {
      const left = Array.from({ length: rounds }, () => sets).flat();
      let isOver = false;
      peakBytes = 0;
      const probe = async () => {
        while (!isOver) {
          const asked = performance.now();
          const answer = await fetch(`http://127.0.0.1:${service.httpPort}/readyz`);
          expect(answer.status, await answer.text()).toBe(200);
          longestMs = Math.max(longestMs, performance.now() - asked);
          peakBytes = Math.max(peakBytes, residentBytes());
          await wait(PROBE_INTERVAL_MS);
        }
      };
      const caller = async () => {
        for (let set = left.pop(); set; set = left.pop()) await send(set);
      };
      const callers = Promise.all(Array.from({ length: CALLERS }, caller)).finally(() => {
        isOver = true;
      });
      await Promise.all([callers, probe()]);
      return peakBytes;
    }

    const atStart = residentBytes();
    const first = await attack(ROUNDS);
    const second = await attack(ROUNDS);
    tell(
      `hostile registrations: memory ${atStart / MIB} MiB at the start, at most ${first / MIB} and then ${second / MIB}; /readyz took at most ${longestMs} ms`,
    );
    expect(second - first).toBeLessThan(MAX_GROWTH);
    expect(await parts.db("event_types")).toEqual([]);
    expect(service.process.exitCode).toBeNull();
    // Every line on stderr is a fault: the log goes to stdout.
    expect(errors.join("")).toBe("");
  },
);
