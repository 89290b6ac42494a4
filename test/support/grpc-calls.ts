import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import type { ConnectError } from "@connectrpc/connect";
import * as grpcJs from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import type { Db } from "../../src/lib/pg/database.ts";
import { failure } from "./failure.ts";
import { enveloped } from "./hostile-messages.ts";
import type { TestApi } from "./test-api.ts";
import { callGrpc } from "./wire.ts";

type MethodDefinition = grpcJs.MethodDefinition<object, object>;

const root = fileURLToPath(new URL("../..", import.meta.url));
const webhookMethods = loadSync("webhook/v1/webhook.proto", {
  includeDirs: [`${root}proto`, `${root}node_modules/protobufjs`],
  arrays: true,
})["webhook.v1.WebhookService"] as Record<string, MethodDefinition>;

/** How a call was refused; an error when it was not. */
export async function refused(call: Promise<unknown>): Promise<ConnectError> {
  const error = await failure(call);
  if (!error) throw new Error("the call was not refused");
  return error;
}

/** The reason of the error's google.rpc.ErrorInfo. */
export function reasonOf(error: ConnectError): string | undefined {
  return error.findDetails(ErrorInfoSchema)[0]?.reason;
}

/** Values of a dispatched order. */
interface Order {
  orderId?: bigint;
  orderNumber?: string;
  carrier?: string;
  trackingNumber?: string;
  dispatchedAt?: { seconds: bigint; nanos?: number };
  lines?: { productId: bigint; sku: string; quantity: number }[];
}

/** One event to publish, under a key of its own. */
export function orderEvent() {
  return anOrder();
}

/** The same with other values of the order and of the event where given. */
export function anOrder(
  order: Order = {},
  more: { idempotencyKey?: string; userId?: string; time?: { seconds: bigint; nanos?: number } } = {},
) {
  return {
    idempotencyKey: randomUUID(),
    userId: "u",
    data: {
      case: "orderDispatched" as const,
      value: { orderId: 1n, orderNumber: "1", dispatchedAt: { seconds: 1n }, ...order },
    },
    ...more,
  };
}

/** A client of WebhookService made by @grpc/grpc-js. */
export function foreignClient({ grpcPort, adminKey }: TestApi) {
  const client = new grpcJs.Client(`127.0.0.1:${grpcPort}`, grpcJs.credentials.createInsecure());
  const metadata = new grpcJs.Metadata();
  metadata.set("x-service-key", adminKey);
  return {
    close: () => client.close(),
    call: (name: string, request: object) =>
      new Promise<unknown>((resolve, reject) => {
        const { path, requestSerialize, responseDeserialize } = webhookMethods[name] as MethodDefinition;
        client.makeUnaryRequest(
          path,
          requestSerialize,
          responseDeserialize,
          request,
          metadata,
          (error: grpcJs.ServiceError | null, answer?: object) => (error ? reject(error) : resolve(answer)),
        );
      }),
  };
}

/** The trailers of a gRPC call as they are on the wire, and their size as HTTP/2 counts it, in bytes. */
export async function grpcTrailers(api: TestApi, path: string, message: Uint8Array) {
  const { trailers } = await callGrpc(api, path, { body: enveloped(message) });
  const sizes = Object.entries(trailers).map(([name, value]) => name.length + String(value).length + 32);
  return { trailers, bytes: sizes.reduce((sum, size) => sum + size, 0) };
}

/** An API, as far as its database goes. */
interface OnDatabase {
  context: { db: Db };
}

/** Queries of calls that wait for a lock. The API records the last use of keys at any time, beside calls. */
export async function waitingQueries({ context }: OnDatabase): Promise<number> {
  const { rows } = await context.db.raw(
    `select count(*)::int as n from pg_stat_activity
     where wait_event_type = 'Lock' and datname = current_database() and position('set last_used' in query) = 0`,
  );
  return rows[0].n;
}

/** Keeps every query of the table waiting until it is called. */
export async function lock({ context }: OnDatabase, table: string): Promise<() => Promise<void>> {
  const trx = await context.db.transaction();
  await trx.raw(`lock table ${table} in access exclusive mode`);
  return async () => {
    await trx.rollback();
  };
}
