import tls from "node:tls";
import { onTestFinished } from "vitest";
import { type Certificate, createLocalAuthority, type LocalAuthority } from "../../demo/certificates.ts";
import { type Receiver, type Reply, startReceiver } from "../../demo/receiver.ts";

let trusted: Promise<LocalAuthority> | undefined;

/** The authority whose certificates this process trusts. */
export function trustedAuthority(): Promise<LocalAuthority> {
  trusted ??= createLocalAuthority().then((authority) => {
    tls.setDefaultCACertificates([...tls.getCACertificates("default"), authority.cert]);
    return authority;
  });
  return trusted;
}

let local: Promise<Certificate> | undefined;

/** A trusted certificate for `localhost` and `127.0.0.1`. */
export function localCertificate(): Promise<Certificate> {
  local ??= trustedAuthority().then((authority) => authority.issue(["localhost", "127.0.0.1"]));
  return local;
}

/** Starts a receiver until the end of the test. Its certificate is that of `localhost` unless given. */
export async function aReceiver(reply?: Reply, certificate?: Certificate): Promise<Receiver> {
  const receiver = await startReceiver(certificate ?? (await localCertificate()), reply);
  onTestFinished(receiver.close);
  return receiver;
}

/** Replies that are held until they are given. */
export function heldReplies() {
  const held: ((status: number) => void)[] = [];
  let always: number | undefined;
  return {
    reply: (() => always ?? new Promise<number>((resolve) => held.push(resolve))) as Reply,
    /** The number of requests whose replies are held. */
    get waiting() {
      return held.length;
    },
    /** Answers all that wait, and with `later` all that come. */
    answer(status = 200, { later = true } = {}) {
      if (later) always = status;
      for (const resolve of held.splice(0)) resolve(status);
    },
  };
}
