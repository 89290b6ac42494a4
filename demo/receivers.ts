import tls from "node:tls";
import { createLocalAuthority } from "./certificates.ts";
import { line, showArrival } from "./output.ts";
import { type Receiver, startReceiver } from "./receiver.ts";

/** The receivers of the demo. */
export interface DemoReceivers {
  good: Receiver;
  /** Responds with 503 to the first two attempts of each delivery. */
  recovering: Receiver;
  /** Always responds with 500. */
  failing: Receiver;
}

/** Starts three HTTPS receivers with certificates that this process trusts. */
export async function startDemoReceivers(): Promise<DemoReceivers> {
  const authority = await createLocalAuthority();
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), authority.cert]);
  const certificate = await authority.issue(["localhost", "127.0.0.1"]);
  /** The delivery that is shown with headers and body. */
  let followed: string | undefined;
  const start = (name: string, answer: (attempt: number) => number, follow = false) =>
    startReceiver(certificate, (request) => {
      const status = answer(request.attempt);
      const id = String(request.headers["x-service-webhook-id"]);
      if (follow) followed ??= id;
      showArrival(name.padEnd(10), request, status, id === followed && request.attempt === 1);
      if (id === followed && request.attempt > 1)
        line("    the same id and body, with a new timestamp and signature");
      return status;
    });
  const good = await start("good", () => 200);
  const recovering = await start("recovering", (attempt) => (attempt <= 2 ? 503 : 200), true);
  const failing = await start("failing", () => 500);
  return { good, recovering, failing };
}
