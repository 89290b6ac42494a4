import type { Client } from "@temporalio/client";
import proto from "@temporalio/proto";
import type { Logger } from "pino";

/** By these an operator finds a run: `FailingHosts = "shop.example"`. */
export const SEARCH_ATTRIBUTES = { FailingWebhookIds: "KeywordList", FailingHosts: "KeywordList" } as const;

const KEYWORD_LIST = proto.temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST;

/**
 * Makes sure that the search attributes exist. Where this client may not register them, as in Temporal Cloud, it
 * logs the command that does, and the service runs without.
 */
export async function ensureSearchAttributes(
  client: Client,
  namespace: string,
  log: Logger,
): Promise<boolean> {
  const operator = client.connection.operatorService;
  try {
    const { customAttributes } = await operator.listSearchAttributes({ namespace });
    const missing = Object.keys(SEARCH_ATTRIBUTES).filter((name) => !(name in (customAttributes ?? {})));
    if (missing.length === 0) return true;
    await operator.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(missing.map((name) => [name, KEYWORD_LIST])),
    });
    return true;
  } catch (error) {
    // Another process may have been quicker.
    if (/already exist/i.test(String((error as Error).message))) return true;
    const names = Object.entries(SEARCH_ATTRIBUTES).map(([name, type]) => `--name ${name} --type ${type}`);
    log.warn(
      { reason: (error as Error).message },
      `runs cannot be searched by failing webhook or host; to allow it, run: temporal operator search-attribute create --namespace ${namespace} ${names.join(" ")}`,
    );
    return false;
  }
}
