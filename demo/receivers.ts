import tls from "node:tls";
import { createLocalAuthority } from "./certificates.ts";
import { showArrival } from "./output.ts";
import { type Receiver, startReceiver } from "./receiver.ts";

/** The receivers of the demo. */
export interface DemoReceivers {
  good: Receiver;
  /** Responds with 503 to the first two attempts of each delivery. */
  recovering: Receiver;
  /** Always responds with 500. */
  failing: Receiver;
  close(): Promise<void>;
}

/** Starts three HTTPS receivers with certificates that this process trusts. */
export async function startDemoReceivers(): Promise<DemoReceivers> {
  const authority = await createLocalAuthority();
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), authority.cert]);
  const certificate = await authority.issue(["localhost", "127.0.0.1"]);
  const start = (name: string, answer: (attempt: number) => number) =>
    startReceiver(certificate, (request) => {
      const status = answer(request.attempt);
      showArrival(name, request, status);
      return status;
    });
  const good = await start("good receiver", () => 200);
  const recovering = await start("recovering receiver", (attempt) => (attempt <= 2 ? 503 : 200));
  const failing = await start("failing receiver", () => 500);
  return {
    good,
    recovering,
    failing,
    async close() {
      await Promise.all([good, recovering, failing].map((receiver) => receiver.close()));
    },
  };
}
