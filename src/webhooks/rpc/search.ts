import type { ServiceImpl } from "@connectrpc/connect";
import {
  WebhookOrder,
  type WebhookService,
  WebhookState,
  WebhookStateSchema,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { assertText, callerScope, optionalUuid, readPage, searchWords } from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { nameOf } from "../../contract/enum-numbers.ts";
import { enumChoices } from "../../contract/json/names.ts";
import type { Db } from "../../lib/pg/index.ts";
import {
  countWebhooks,
  type SearchedState,
  type SearchOrder,
  searchWebhooks,
  typesOfEndpoints,
  type WebhookSearch,
} from "../search.ts";
import { healthNames, webhookMessage } from "./webhook-message.ts";
import { checkedProcesses } from "./webhook-values.ts";

const MAX_SEARCH_CHARACTERS = 300;
const MAX_WORDS = 10;
const PAGE_SIZES = { most: 200, usual: 50 };

const STATES: Record<SearchedState, WebhookState> = {
  active: WebhookState.ACTIVE,
  paused: WebhookState.PAUSED,
  open: WebhookState.CIRCUIT_OPEN,
  disabled: WebhookState.DISABLED,
};
const ORDERS: Record<SearchOrder, WebhookOrder> = {
  newest: WebhookOrder.UNSPECIFIED,
  oldest: WebhookOrder.OLDEST,
  "least healthy": WebhookOrder.LEAST_HEALTHY,
};

/** Pages by the place in an order. */
const BY_RANK = {
  of: ({ rank, id }: { rank: number; id: bigint }) => Buffer.from(`${rank} ${id}`),
  parse(token: Buffer) {
    const [, rank, id] = /^([012]) (\d{1,18})$/.exec(token.toString()) ?? [];
    return rank === undefined || id === undefined ? undefined : { rank: Number(rank), after: BigInt(id) };
  },
};

/** The method that finds webhooks. */
export function searchMethods({
  db,
}: {
  db: Db;
}): Pick<ServiceImpl<typeof WebhookService>, "searchWebhooks"> {
  return {
    async searchWebhooks(request, handler) {
      const scope = callerScope(handler, request.customer);
      const { installedApplicationId: appId, process } = request;
      if (process !== undefined) await checkedProcesses("process", [process]);
      const search: WebhookSearch = {
        words: wordsOf(request.search),
        health: healthNames(request.health),
        states: request.states.map(stateOf),
        process,
        appId: appId === "" ? null : optionalUuid("installed_application_id", appId),
        apiKeyId: request.apiKeyId === undefined ? undefined : optionalUuid("api_key_id", request.apiKeyId),
        withoutCustomer: request.withoutCustomer && scope === "everything",
      };
      const order = nameOf(ORDERS, request.order);
      if (!order) throw invalidField("order", "must be 0 (newest first), 1 (OLDEST) or 2 (LEAST_HEALTHY)");
      const { rows, nextPageToken } = await readPage(
        request,
        BY_RANK,
        (page) => searchWebhooks(db, scope, search, order, page),
        PAGE_SIZES,
      );
      // Counting evaluates the search for every webhook again, which is not needed if the first page has all that was found.
      const isAll = request.pageToken === "" && nextPageToken === "";
      const found = isAll ? rows.length : await countWebhooks(db, scope, search);
      const ids = rows.flatMap(({ endpointId }) => endpointId ?? []);
      const endpoints = await typesOfEndpoints(db, scope, ids);
      return {
        webhooks: rows.map((row) => webhookMessage(row, scope)),
        nextPageToken,
        found,
        endpoints: endpoints.map(({ id, processes }) => ({ id, processNames: processes.map(processName) })),
      };
    },
  };
}

function wordsOf(search: string): string[] {
  assertText("search", search, MAX_SEARCH_CHARACTERS);
  const words = searchWords(search.toLowerCase());
  if (words.length > MAX_WORDS) throw invalidField("search", `must have at most ${MAX_WORDS} words`);
  return words;
}

function stateOf(number: WebhookState): SearchedState {
  const state = nameOf(STATES, number);
  if (state) return state;
  throw invalidField(
    "states",
    `${number} is not allowed; send any of: ${enumChoices(WebhookStateSchema).join(", ")}`,
  );
}
