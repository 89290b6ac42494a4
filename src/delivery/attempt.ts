import type { Logger } from "pino";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import type { Clock } from "../process/clock.ts";
import type { EventContents } from "./event-contents.ts";
import { TokenError } from "./oauth2/token-request.ts";
import { ProxyUnavailableError } from "./proxy/proxy-error.ts";
import { type Additions, NO_ADDITIONS, type ReadAdditions } from "./request/additions.ts";
import { notBuilt } from "./request/not-built.ts";
import type { Outcome } from "./request/outcome.ts";
import type { Gate } from "./request/post.ts";
import { buildRequest, type SignedRequest } from "./request/request.ts";
import type { Signer } from "./request/signature.ts";

/** Dependencies of attempts. */
export interface AttemptParts {
  clock: Pick<Clock, "soon">;
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

/** Decides whether an attempt may still be made, and learns how it ended: exactly one of the other methods is called. */
export interface AttemptGate extends Gate {
  /** @param signature the signature that the request carries; null if it could not be built */
  ended(outcome: Outcome, signature: string | null): void;
}

/** Makes one attempt of a delivery whose payload is loaded. */
export type Attempt = (delivery: ClaimedDelivery, gate: AttemptGate) => void;

/**
 * Makes attempts: reads the additions of the webhook's settings, builds and signs the request, and sends it. An attempt whose
 * request cannot be built fails, so that its delivery does not stay pending forever.
 */
export function createAttempt({ clock, log, post, sign, additions, contents }: AttemptParts): Attempt {
  function failed(delivery: ClaimedDelivery, gate: AttemptGate, error: unknown, started: Date): void {
    if (!(error instanceof TokenError))
      log.error({ err: error, deliveryId: delivery.id }, "building a request failed");
    clock.soon(() => gate.ended(notBuilt(error, started), null));
  }

  function send(delivery: ClaimedDelivery, gate: AttemptGate, added: Additions): void {
    let request: SignedRequest;
    try {
      request = buildRequest(delivery, contents.of(delivery), sign, added);
    } catch (error) {
      // For example, a secret cannot be opened.
      failed(delivery, gate, error, new Date());
      return;
    }
    const outcome = (known: Outcome) => {
      if (known.status === 401) request.onUnauthorized?.();
      gate.ended(known, request.signature);
    };
    post(request, outcome, gate, delivery);
  }

  return (delivery, gate) => {
    const { id, requestSettings } = delivery.webhook;
    if (!requestSettings) {
      send(delivery, gate, NO_ADDITIONS);
      return;
    }
    const started = new Date();
    let added: Additions | Promise<Additions>;
    try {
      added = additions(id, requestSettings);
    } catch (error) {
      failed(delivery, gate, error, started);
      return;
    }
    if (!(added instanceof Promise)) {
      send(delivery, gate, added);
      return;
    }
    // The delivery keeps its slot while the access token is fetched: otherwise ever more would be claimed.
    added.then(
      (known) => {
        if (gate.maySend()) send(delivery, gate, known);
        else gate.withdrawn();
      },
      (error) => {
        if (error instanceof ProxyUnavailableError) gate.withdrawn();
        else failed(delivery, gate, error, started);
      },
    );
  };
}
