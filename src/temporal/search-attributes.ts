import type { Client } from "@temporalio/client";
import proto from "@temporalio/proto";
import type { Logger } from "pino";

/**
 * Search attributes of runs for operators: `FailingHosts = "shop.example"`, or `DeliveryAttempts > 0` for runs that did
 * anything.
 */
export const SEARCH_ATTRIBUTES = {
  FailingWebhookIds: "KeywordList",
  FailingHosts: "KeywordList",
  DeliveryAttempts: "Int",
} as const;

type Name = keyof typeof SEARCH_ATTRIBUTES;

const TYPES = {
  KeywordList: proto.temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
  Int: proto.temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_INT,
};

/** Which search attributes runs may set. */
export interface Searchable {
  /** FailingWebhookIds and FailingHosts. */
  failing: boolean;
  /** DeliveryAttempts. */
  attempts: boolean;
}

/**
 * Ensures that the search attributes exist. If this client may not register them, as in Temporal Cloud, the service
 * logs the command for an administrator to run, and works without those that are missing.
 */
export async function ensureSearchAttributes(
  client: Client,
  namespace: string,
  log: Logger,
): Promise<Searchable> {
  const operator = client.connection.operatorService;
  const all = Object.keys(SEARCH_ATTRIBUTES) as Name[];
  let missing = all;
  try {
    const { customAttributes } = await operator.listSearchAttributes({ namespace });
    missing = all.filter((name) => !(name in (customAttributes ?? {})));
    if (missing.length > 0) {
      await operator.addSearchAttributes({
        namespace,
        searchAttributes: Object.fromEntries(missing.map((name) => [name, TYPES[SEARCH_ATTRIBUTES[name]]])),
      });
    }
    missing = [];
  } catch (error) {
    // Another process may have registered them first.
    if (/already exist/i.test(String((error as Error).message))) missing = [];
    else {
      const names = missing.map((name) => `--name ${name} --type ${SEARCH_ATTRIBUTES[name]}`);
      log.warn(
        { reason: (error as Error).message },
        `registering search attributes failed; to search runs by failing webhook, host or attempts, run: temporal operator search-attribute create --namespace ${namespace} ${names.join(" ")}`,
      );
    }
  }
  return {
    failing: !missing.includes("FailingWebhookIds") && !missing.includes("FailingHosts"),
    attempts: !missing.includes("DeliveryAttempts"),
  };
}
