import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type {
  CustomerMetadata,
  CustomerQuotas,
  CustomerService,
  UpdateCustomerRequest,
} from "../../../gen/webhook/v1/customer_pb.ts";
import { actorOf, auditedCall, type Recorder } from "../../audit/index.ts";
import { invalidField } from "../../calls/errors/index.ts";
import {
  assertCustomer,
  assertServiceWide,
  assertText,
  callerScope,
  pageSize,
  type Scope,
} from "../../calls/index.ts";
import { present } from "../../contract/present.ts";
import type { Db } from "../../lib/pg/index.ts";
import { takeLock } from "../../schema/index.ts";
import { customerErased, customerPaused, customerUpdated } from "../customer-changes.ts";
import { listCustomers } from "../customer-list.ts";
import {
  type CustomerRow,
  type CustomerSettings,
  changeCustomer,
  changeSettings,
  lockCustomer,
  readCustomer,
  readCustomers,
  requiredCustomer,
} from "../customers.ts";
import { startErasure } from "../erasure.ts";
import { type Counts, customerMessage } from "./customer-message.ts";

/** The maximum length of a search, in characters. */
const MAX_SEARCH_CHARACTERS = 128;
/** The maximum length of a display name, in characters. */
const MAX_NAME_CHARACTERS = 100;
/** The limits of metadata: its entries, and their keys and values in characters. */
const MAX_METADATA = { entries: 50, key: 40, value: 500 };
/** The sizes of pages: each customer is counted. */
const PAGE_SIZES = { most: 200, usual: 50 };
/** The maximum of each quota. */
const MAX_QUOTAS = { webhooks: 1_000_000, eventsPerSecond: 100_000, pendingDeliveries: 1_000_000_000 };

/** What the service of customers uses. */
export interface CustomerServiceParts {
  db: Db;
  /** Called after each write that resumes deliveries. Returns at once. */
  onQueued?: () => void;
  /** What customers have that a scope can access, in their order. */
  countOfCustomers(db: Db, scope: Scope, customers: readonly string[]): Promise<Counts[]>;
  /** Pauses or resumes the webhooks of a customer; returns their number. */
  pauseWebhooksOf(trx: Db, customer: string, paused: boolean): Promise<number>;
}

/** Manages customers. */
export function customerService(context: CustomerServiceParts): ServiceImpl<typeof CustomerService> {
  const { db, onQueued = () => {}, countOfCustomers, pauseWebhooksOf } = context;

  async function messages(scope: Scope, customers: readonly CustomerRow[]) {
    const ids = customers.map(({ id }) => id);
    const counts = await countOfCustomers(db, scope, ids);
    return customers.map((customer, n) => customerMessage(customer, counts[n], scope === "everything"));
  }

  /** Changes a customer for the operator. */
  async function change(
    handler: HandlerContext,
    customer: string,
    work: (trx: Db, record: Recorder) => Promise<CustomerRow>,
  ) {
    assertServiceWide(handler);
    assertCustomer(customer);
    const changed = await auditedCall(db, handler, work);
    const [message] = await messages("everything", [changed]);
    return present({ customer: message });
  }

  async function pause(handler: HandlerContext, id: string, paused: boolean) {
    const answer = await change(handler, id, async (trx, record) => {
      // A webhook is registered before its customer is paused or resumed, or afterwards.
      await takeLock(trx, "registration");
      const before = await lockCustomer(trx, id);
      if ((before.paused !== null) === paused) return before;
      const customer = await changeCustomer(trx, id, { paused: paused ? trx.fn.now() : null });
      await record(customerPaused(before, customer, await pauseWebhooksOf(trx, id, paused)));
      return customer;
    });
    if (!paused) onQueued();
    return answer;
  }

  return {
    async listCustomers(request, handler) {
      assertText("search", request.search, MAX_SEARCH_CHARACTERS);
      const limit = pageSize(request.pageSize, PAGE_SIZES);
      const after = positionOf(request.pageToken);
      const scope = callerScope(handler);
      if (scope === "everything" || scope.customer === null) {
        assertServiceWide(handler);
        const { customers, next } = await listCustomers(db, { after, search: request.search, limit });
        return {
          customers: await messages(scope, customers),
          nextPageToken: Buffer.from(next ?? "").toString("base64url"),
        };
      }
      const own = await readCustomers(db, [scope.customer]);
      const shown = own.filter((each) => each.id > (after ?? "") && isFound(each, request.search));
      return { customers: await messages(scope, shown) };
    },

    async getCustomer({ customer: id }, handler) {
      assertCustomer(id);
      const caller = callerScope(handler);
      // Of a key of an app, only what belongs to both is counted.
      const scope = caller === "everything" ? caller : callerScope(handler, id);
      const customer = await (scope === "everything" ? requiredCustomer : readCustomer)(db, id);
      const [message] = await messages(scope, [customer]);
      return present({ customer: message });
    },

    updateCustomer: (request, handler) =>
      change(handler, request.customer, async (trx, record) => {
        const settings = settingsOf(request);
        const { created } = await readCustomer(trx, request.customer);
        const before = await lockCustomer(trx, request.customer, true);
        const customer = await changeSettings(trx, before, settings);
        if (customer !== before || !created) await record(customerUpdated(before, customer));
        return customer;
      }),

    pauseCustomer: ({ customer }, handler) => pause(handler, customer, true),

    resumeCustomer: ({ customer }, handler) => pause(handler, customer, false),

    eraseCustomer: ({ customer: id }, handler) =>
      change(handler, id, async (trx, record) => {
        const before = await lockCustomer(trx, id);
        const customer = await startErasure(trx, before, actorOf(handler));
        if (customer) await record(customerErased(customer));
        return customer ?? before;
      }),
  };
}

/** Whether a search finds a customer. */
const isFound = ({ id, displayName }: CustomerRow, search: string) =>
  id.startsWith(search) || (displayName ?? "").toLowerCase().includes(search.toLowerCase());

/** The id after which a page begins; null for the first page. */
function positionOf(token: string): string | null {
  if (token === "") return null;
  const id = Buffer.from(token, "base64url").toString();
  if (/^[\x21-\x7e]{1,128}$/.test(id)) return id;
  throw invalidField("page_token", "must be the next_page_token of a page");
}

/** The settings that a request replaces. */
function settingsOf({ displayName, metadata, quotas }: UpdateCustomerRequest): Partial<CustomerSettings> {
  if (displayName !== undefined) assertText("display_name", displayName, MAX_NAME_CHARACTERS);
  return {
    ...(displayName === undefined ? {} : { displayName: displayName || null }),
    ...(metadata === undefined ? {} : { metadata: checkedMetadata(metadata) }),
    ...(quotas === undefined ? {} : checkedQuotas(quotas)),
  };
}

function checkedMetadata({ entries }: CustomerMetadata): Record<string, string> {
  const all = Object.entries(entries);
  if (all.length > MAX_METADATA.entries)
    throw invalidField("metadata.entries", `must have at most ${MAX_METADATA.entries} entries`);
  for (const [key, value] of all) {
    if (key === "") throw invalidField("metadata.entries", "must not have an empty key");
    assertText("metadata.entries: each key", key, MAX_METADATA.key);
    assertText("metadata.entries: each value", value, MAX_METADATA.value);
  }
  return entries;
}

function checkedQuotas({ webhooks, eventsPerSecond, pendingDeliveries }: CustomerQuotas) {
  const quota = (field: string, value: number, most: number) => {
    if (value < 0 || value > most)
      throw invalidField(`quotas.${field}`, `must be from 1 to ${most}, or 0 for no quota`);
    return value || null;
  };
  return {
    webhookQuota: quota("webhooks", webhooks, MAX_QUOTAS.webhooks),
    eventsPerSecond: quota("events_per_second", eventsPerSecond, MAX_QUOTAS.eventsPerSecond),
    pendingQuota: quota("pending_deliveries", pendingDeliveries, MAX_QUOTAS.pendingDeliveries),
  };
}
