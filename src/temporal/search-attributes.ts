import type { Client } from "@temporalio/client";
import proto from "@temporalio/proto";
import type { Logger } from "pino";
import type { Searchable } from "../../workflows/dispatch-input.ts";

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
const NAMES = Object.keys(SEARCH_ATTRIBUTES) as Name[];

const TYPES = {
  KeywordList: proto.temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
  Int: proto.temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_INT,
};

/** The addresses of Temporal Cloud, with or without a port. */
const CLOUD_ADDRESS = /\.tmprl\.cloud(:\d+)?$/;

/** Reads which search attributes are registered. */
export async function readSearchable(client: Client): Promise<Searchable> {
  const missing = await missingOf(client, client.options.namespace);
  return {
    failing: !missing.includes("FailingWebhookIds") && !missing.includes("FailingHosts"),
    attempts: !missing.includes("DeliveryAttempts"),
  };
}

async function missingOf(client: Client, namespace: string): Promise<Name[]> {
  const { customAttributes } = await client.connection.operatorService.listSearchAttributes({ namespace });
  return NAMES.filter((name) => !(name in (customAttributes ?? {})));
}

/**
 * Ensures that the search attributes exist. If this client may not register them, as in Temporal Cloud, the service
 * logs the command for an administrator to run, and works without those that are missing.
 *
 * @param address Temporal's `host:port`, which tells whether it is Temporal Cloud
 */
export async function ensureSearchAttributes(
  client: Client,
  namespace: string,
  log: Logger,
  address = "",
): Promise<void> {
  let missing = NAMES;
  try {
    missing = await missingOf(client, namespace);
    if (missing.length === 0) return;
    const searchAttributes = Object.fromEntries(
      missing.map((name) => [name, TYPES[SEARCH_ATTRIBUTES[name]]]),
    );
    await client.connection.operatorService.addSearchAttributes({ namespace, searchAttributes });
  } catch (error) {
    const reason = String((error as Error).message);
    // Another process may have registered them first.
    if (/already exist/i.test(reason)) return;
    log.warn(
      { reason },
      `registering search attributes failed; to search runs by failing webhook, host or attempts, run: ${commandFor(address, namespace, missing)}`,
    );
  }
}

/** The command with which an administrator registers search attributes. Runs use them from then on. */
function commandFor(address: string, namespace: string, names: readonly Name[]): string {
  const isCloud = CLOUD_ADDRESS.test(address);
  const command = isCloud
    ? "tcld namespace search-attributes add"
    : "temporal operator search-attribute create";
  const attributes = names.map((name) => {
    const type = SEARCH_ATTRIBUTES[name];
    return isCloud ? `--search-attribute ${name}=${type}` : `--name ${name} --type ${type}`;
  });
  return [command, `--namespace ${namespace}`, ...attributes].join(" ");
}
