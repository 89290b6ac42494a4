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

/** Dependencies of attempts. */
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

/** Decides whether an attempt may still be sent, and receives its end: either `ended` or `withdrawn` is called, once. */
export interface AttemptGate extends Gate {
  /** @param signature the signature that the request carries; null if the request could not be built */
  ended(outcome: Outcome, signature: string | null): void;
}

/**
 * Makes one attempt of a delivery whose payload is loaded: reads the additions of the webhook's settings, builds and signs the request,
 * and sends it. An attempt whose request cannot be built fails, so that its delivery does not stay pending forever. If no access token
 * can be fetched because the outbound proxy is unavailable, the attempt is withdrawn instead.
 */
export function makeAttempt(parts: AttemptParts, delivery: ClaimedDelivery, gate: AttemptGate): void {
  const { log, post, sign, additions, contents } = parts;
  const { id, requestSettings } = delivery.webhook;
  const started = new Date();
  const build = (added: Additions) => buildRequest(delivery, contents.of(delivery), sign, added);
  const failed = (error: unknown) => {
    if (error instanceof ProxyUnavailableError) return gate.withdrawn();
    if (!(error instanceof TokenError))
      log.error({ err: error, deliveryId: delivery.id }, "building a request failed");
    gate.ended(notBuilt(error, started), null);
  };
  const send = (request: SignedRequest) => {
    const ended = (outcome: Outcome) => {
      if (outcome.status === 401) request.onUnauthorized?.();
      gate.ended(outcome, request.signature);
    };
    post(request, ended, gate, delivery);
  };

  let request: SignedRequest | Promise<SignedRequest>;
  try {
    const added = requestSettings ? additions(id, requestSettings) : NO_ADDITIONS;
    request = added instanceof Promise ? added.then(build) : build(added);
  } catch (error) {
    // For example, a secret cannot be decrypted.
    failed(error);
    return;
  }
  if (!(request instanceof Promise)) send(request);
  // The delivery keeps its slot while the access token is fetched: otherwise deliveries would pile up behind a slow token endpoint.
  else request.then((built) => (gate.maySend() ? send(built) : gate.withdrawn()), failed);
}
