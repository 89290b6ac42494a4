import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { DeliveryConfig } from "../../config/index.ts";
import type { RequestTrial, TrialRequest } from "../../contract/target-rules.ts";
import { failureCause } from "../../incidents/index.ts";
import {
  createHttpClient,
  type Dispatching,
  NameResolver,
  OutboundProxy,
  ProxyUnavailableError,
  tlsIdentity,
} from "../../lib/egress/index.ts";
import type { Db } from "../../lib/pg/index.ts";
import { type ClaimedWebhook, ClaimedWebhooks, type SecretBox } from "../../webhooks/index.ts";
import { fetchToken, TokenError } from "../oauth2/token-request.ts";
import { bearer, secretsIn } from "./additions.ts";
import { type Guards, ofOwner } from "./guards.ts";
import { notBuilt } from "./not-built.ts";
import type { Outcome } from "./outcome.ts";
import { post } from "./post.ts";
import { buildRequest } from "./request.ts";
import { createSigner } from "./signature.ts";
import { tracedClient } from "./traced-client.ts";

/** The value of X-Service-UserId in test requests to webhooks of installed apps. */
const USER_ID = "test";

/** Creates the sender of test requests in the API's process. They share no connections with deliveries or with each other. */
export function createRequestTrial(options: {
  db: Db;
  secrets: SecretBox;
  guards: Guards;
  delivery: Pick<DeliveryConfig, "timeoutMs" | "proxy" | "proxyDns">;
  log: Logger;
}): RequestTrial {
  const { db, secrets, guards, log } = options;
  const { timeoutMs, proxy, proxyDns } = options.delivery;
  const resolvesNames = proxyDns === "remote";
  const outbound = proxy && new OutboundProxy(proxy, new NameResolver(), { timeoutMs, resolvesNames, log });
  const sign = createSigner(secrets);
  const webhooks = new ClaimedWebhooks();

  /** Runs work with a client of its own: over a connection that is reused, neither lookup nor handshake would be tested. */
  async function withClient<T>(
    { customer }: ClaimedWebhook,
    work: (client: Dispatching) => Promise<T>,
  ): Promise<T> {
    const client = createHttpClient(ofOwner(guards, customer), 1, outbound);
    return work(client).finally(() => client.destroy());
  }

  async function attempt(webhook: ClaimedWebhook, given: TrialRequest, via: Dispatching): Promise<Outcome> {
    const { payload, oauth2 } = given;
    const started = new Date();
    const headers = [...given.headers];
    try {
      // Fetches a new token, because a cached one would not test the credentials.
      if (oauth2)
        headers.push(...bearer((await withClient(webhook, (via) => fetchToken(via, oauth2))).value));
    } catch (error) {
      if (error instanceof TokenError || error instanceof ProxyUnavailableError)
        return notBuilt(error, started);
      throw error;
    }
    const content = { payload, userId: USER_ID, test: true };
    const additions = { headers, hidden: secretsIn(headers), tls: tlsIdentity(given.tls) };
    const request = buildRequest({ id: randomUUID(), webhook }, content, sign, additions);
    return new Promise((resolve) => post(via, request, timeoutMs, resolve));
  }

  return async (given) => {
    const { webhookId, revision } = given;
    const webhook = (await webhooks.load(db, new Set([webhookId]))).get(webhookId);
    if (webhook?.revision !== revision) return null;
    return withClient(webhook, async (client) => {
      const traced = tracedClient(client);
      const { delivered, status, error, responseStart, durationMs } = await attempt(webhook, given, traced);
      const cause = delivered ? null : failureCause(status, error);
      return { accepted: delivered, status, error, responseStart, durationMs, cause, ...traced.seen() };
    });
  };
}
