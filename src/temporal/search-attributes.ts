import type { Client } from "@temporalio/client";
import proto from "@temporalio/proto";
import type { Logger } from "pino";

/** Search attributes of runs for operators, for example `FailingHosts = "shop.example"`. */
export const SEARCH_ATTRIBUTES = { FailingWebhookIds: "KeywordList", FailingHosts: "KeywordList" } as const;

const KEYWORD_LIST = proto.temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST;

/**
 * Ensures that the search attributes exist. If this client may not register them, as in Temporal Cloud, the service
 * logs the command for an administrator to run, and works without them.
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
    // Another process may have registered them first.
    if (/already exist/i.test(String((error as Error).message))) return true;
    const names = Object.entries(SEARCH_ATTRIBUTES).map(([name, type]) => `--name ${name} --type ${type}`);
    log.warn(
      { reason: (error as Error).message },
      `registering search attributes failed; to search runs by failing webhook or host, run: temporal operator search-attribute create --namespace ${namespace} ${names.join(" ")}`,
    );
    return false;
  }
}
