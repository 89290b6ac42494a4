import type { DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { AuditService } from "../../../gen/webhook/v1/audit_pb.ts";
import { CustomerService } from "../../../gen/webhook/v1/customer_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import { ReplayService } from "../../../gen/webhook/v1/replay_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";

/** Methods that read much, and return no list. */
const HEAVY: ReadonlySet<DescMethod> = new Set<DescMethod>([
  // Counts all open deliveries.
  StatsService.method.getOverview,
  // Counts what a customer has.
  CustomerService.method.getCustomer,
  // Reads as many entries as ListAuditEntries.
  AuditService.method.exportAuditEntries,
  // Sums the progress of each webhook of a replay.
  ReplayService.method.getReplay,
  // Searches deliveries as ListDeliveries does.
  DeliveryService.method.sendAgainMany,
]);

/** Methods that return a list, and read little. */
const LIGHT: ReadonlySet<DescMethod> = new Set<DescMethod>([
  // The attempts of one delivery.
  DeliveryService.method.getDelivery,
  // A few rows of one webhook.
  WebhookService.method.getWebhookSecret,
  WebhookService.method.getWebhookKeyPairs,
  // Nothing of the database.
  WebhookService.method.listProcesses,
  // The queue of filter trials limits it already.
  WebhookService.method.tryWebhookFilter,
]);

/**
 * Whether the calls of a method read much, so that their statements take turns. A method that only reads and returns a list or
 * a stream does, unless it is listed here.
 */
export function readsMuch(method: DescMethod): boolean {
  if (LIGHT.has(method)) return false;
  if (HEAVY.has(method) || method.methodKind === "server_streaming") return true;
  const isRead = method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
  return isRead && method.output.fields.some((field) => field.fieldKind === "list");
}
