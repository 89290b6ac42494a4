import type { Logger } from "pino";
import { ProxyUnavailableError } from "../lib/egress/index.ts";
import type { ClaimedDelivery } from "../queue/index.ts";
import type { EventContents } from "./event-contents.ts";
import { TokenError } from "./oauth2/token-request.ts";
import { type Additions, NO_ADDITIONS, type ReadAdditions } from "./request/additions.ts";
import { notBuilt } from "./request/not-built.ts";
import type { Outcome } from "./request/outcome.ts";
import type { Gate } from "./request/post.ts";
import { buildRequest, type SignedRequest } from "./request/request.ts";
import type { Signer } from "./request/signature.ts";

/** What attempts need. */
export interface AttemptParts {
  log: Logger;
  /** Makes one POST, as `post` does. */
  post: (
    request: SignedRequest,
    outcome: (outcome: Outcome) => void,
    gate: Gate,
    delivery: ClaimedDelivery,
  ) => void;
  sign: Signer;
  /** Reads what webhooks' settings add to requests. */
  additions: ReadAdditions;
  contents: Pick<EventContents, "of">;
}

/** What follows once a request was prepared: exactly one of these is called. */
export interface Prepared {
  ready(request: SignedRequest): void;
  /** The request could not be built: the attempt fails, so that its delivery does not stay pending forever. */
  failed(outcome: Outcome): void;
  /** No access token could be fetched, because the outbound proxy is unavailable. */
  withdrawn(): void;
}

/**
 * Prepares the request of a delivery whose payload is loaded: reads the additions of the webhook's settings, builds and signs the
 * request. Calls back at once, unless an access token must be fetched: the delivery keeps its slot meanwhile, because otherwise
 * deliveries would pile up behind a slow token endpoint.
 */
export function prepare(parts: AttemptParts, delivery: ClaimedDelivery, then: Prepared): void {
  const { log, sign, additions, contents } = parts;
  const { webhook } = delivery;
  const { requestSettings } = webhook;
  const started = new Date();
  const build = (added: Additions) => buildRequest(delivery, contents.of(delivery), sign, added);
  const failed = (error: unknown) => {
    if (error instanceof ProxyUnavailableError) return then.withdrawn();
    if (!(error instanceof TokenError))
      log.error({ err: error, deliveryId: delivery.id }, "building a request failed");
    then.failed(notBuilt(error, started));
  };
  let request: SignedRequest | Promise<SignedRequest>;
  try {
    const added = requestSettings ? additions(webhook, requestSettings) : NO_ADDITIONS;
    request = added instanceof Promise ? added.then(build) : build(added);
  } catch (error) {
    // For example, a secret cannot be decrypted.
    failed(error);
    return;
  }
  if (request instanceof Promise) request.then((built) => then.ready(built), failed);
  else then.ready(request);
}
