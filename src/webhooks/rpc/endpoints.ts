import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type {
  EndpointSchema,
  EndpointService,
  UpdateEndpointRequest,
} from "../../../gen/webhook/v1/endpoint_pb.ts";
import { auditedCall } from "../../audit/index.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { callerOf, callerScope, noWebhook, optionalUuid, type Scope } from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { DomainError } from "../../contract/errors.ts";
import {
  createEndpoint,
  deleteEndpoint,
  type EndpointKey,
  type EndpointRow,
  type EventTypeChanges,
  getEndpoint,
  updateEndpoint,
} from "../endpoints.ts";
import { eachOf, endpointEntry, secretFacts, webhookEntries } from "../webhook-changes.ts";
import type { WebhookServiceParts } from "./service-parts.ts";
import { webhookMessage } from "./webhook-message.ts";
import {
  assertMaySubscribe,
  checkedAddress,
  checkedName,
  checkedProcesses,
  checkedSecret,
} from "./webhook-values.ts";

/** Manages endpoints: URLs for several event types. */
export function endpointService({
  db,
  secrets,
  targets,
  warningsOf = async () => [],
  limits,
  onDeleted,
}: Pick<
  WebhookServiceParts,
  "db" | "secrets" | "targets" | "warningsOf" | "limits" | "onDeleted"
>): ServiceImpl<typeof EndpointService> {
  return {
    async createEndpoint(request, handler) {
      const caller = callerOf(handler);
      const scope = callerScope(handler);
      const processes = await checkedProcesses("processes", request.processes);
      const name = checkedName(request.name);
      const address = checkedAddress(targets, request.url, caller.customer);
      for (const process of processes) assertMaySubscribe(caller, process);
      const warnings = warningsOf(address.targetUrl, caller.customer);
      const secret = request.secret === undefined ? undefined : checkedSecret(request.secret);
      const wanted = { processes, name, apiKeyId: caller.id, ...address, secret };
      const endpoint = await auditedCall(db, handler, async (trx, record) => {
        const created = await createEndpoint(trx, secrets, scope, wanted, limits.maxWebhooks);
        await record(
          endpointEntry("endpoint_created", created.id, [], created.webhooks),
          ...webhookEntries("webhook_created", created.webhooks, secretFacts(secret)),
        );
        return created;
      });
      return { endpoint: endpointMessage(endpoint, scope), warnings: await warnings };
    },

    async getEndpoint({ endpointId }, handler) {
      const scope = callerScope(handler);
      const id = optionalUuid("endpoint_id", endpointId) as string;
      const endpoint = await getEndpoint(db, scope, id);
      if (!endpoint) throw noEndpoint(id);
      return { endpoint: endpointMessage(endpoint, scope) };
    },

    async updateEndpoint(request, handler) {
      const caller = callerOf(handler);
      const scope = callerScope(handler);
      const key = requestedKey(request);
      const changes = await requestedChanges(request);
      for (const process of changes.add) assertMaySubscribe(caller, process);
      return auditedCall(db, handler, async (trx, record) => {
        const changed = await updateEndpoint(
          trx,
          secrets,
          scope,
          key,
          changes,
          limits.maxWebhooks,
          onDeleted,
        );
        if (!changed) throw "webhookId" in key ? noWebhook(key.webhookId) : noEndpoint(key.endpointId);
        const { endpoint, before, added, removed } = changed;
        const joined = before.filter((webhook) => webhook.endpointId === null);
        if (joined.length + added.length + removed.length > 0) {
          const [action, was] =
            joined.length > 0 ? (["endpoint_created", []] as const) : (["endpoint_updated", before] as const);
          const joins = { before: { endpoint_id: null }, after: { endpoint_id: endpoint.id } };
          await record(
            endpointEntry(action, endpoint.id, was, endpoint.webhooks),
            ...eachOf(joined, { action: "webhook_updated", ...joins }),
            ...webhookEntries("webhook_created", added),
            ...webhookEntries("webhook_deleted", removed),
          );
        }
        return { endpoint: endpointMessage(endpoint, scope) };
      });
    },

    async deleteEndpoint({ endpointId }, handler) {
      const scope = callerScope(handler);
      const id = optionalUuid("endpoint_id", endpointId) as string;
      return auditedCall(db, handler, async (trx, record) => {
        const deleted = await deleteEndpoint(trx, scope, id, onDeleted);
        if (!deleted) throw noEndpoint(id);
        // As stored: audit entries are found by the text of an id, and a request may spell a UUID in upper case.
        const storedId = deleted[0]?.endpointId as string;
        await record(
          endpointEntry("endpoint_deleted", storedId, deleted, []),
          ...webhookEntries("webhook_deleted", deleted),
        );
        return { webhooks: deleted.map((webhook) => webhookMessage(webhook, scope)) };
      });
    },
  };
}

function endpointMessage(
  { id, created, webhooks }: EndpointRow,
  scope: Scope,
): MessageInitShape<typeof EndpointSchema> {
  return {
    id,
    created: timestampFromDate(created),
    webhooks: webhooks.map((webhook) => webhookMessage(webhook, scope)),
  };
}

/** @throws DomainError INVALID_ARGUMENT */
function requestedKey({ target }: UpdateEndpointRequest): EndpointKey {
  if (target.case === "webhookId") return { webhookId: target.value };
  if (target.case === "endpointId")
    return { endpointId: optionalUuid("endpoint_id", target.value) as string };
  throw invalidField("target", "is required: send endpoint_id, or the webhook_id of one of its webhooks");
}

/** @throws DomainError INVALID_ARGUMENT */
async function requestedChanges({
  addProcesses,
  removeProcesses,
}: UpdateEndpointRequest): Promise<EventTypeChanges> {
  const add = await checkedProcesses("add_processes", addProcesses);
  const remove = await checkedProcesses("remove_processes", removeProcesses);
  if (add.length + remove.length === 0) {
    throw invalidField(
      "add_processes",
      "is empty, and so is remove_processes; send event types in one of them",
    );
  }
  const both = add.find((process) => remove.includes(process));
  if (both === undefined) return { add, remove };
  throw invalidField(
    "remove_processes",
    `holds ${processName(both)}, as does add_processes; send it in one of them`,
  );
}

/** The error for an endpoint that does not exist or is outside the caller's scope. */
function noEndpoint(id: string): DomainError {
  return new DomainError(
    "ENDPOINT_NOT_FOUND",
    `there is no endpoint ${id}; Webhook.endpoint_id of ListWebhooks names the endpoints`,
  );
}
