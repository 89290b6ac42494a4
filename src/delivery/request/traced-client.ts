import type { X509Certificate } from "node:crypto";
import { TRIAL_PARTS, type TrialCertificate, type TrialOutcome } from "../../contract/target-rules.ts";
import type { ConnectionTrace, Dispatching } from "../../lib/egress/index.ts";

/** The maximum number of certificates of a chain that are shown. */
const MAX_CERTIFICATES = 10;

/** Creates a client that notes how its request went. For one request. @param client has no connections yet */
export function tracedClient(client: Dispatching) {
  const trace: ConnectionTrace = {};
  let answered: number | undefined;
  const dispatch: Dispatching["dispatch"] = (options, handler, connection) =>
    client.dispatch(
      options,
      {
        ...handler,
        onResponseStart(...response) {
          answered ??= performance.now();
          handler.onResponseStart?.(...response);
        },
      },
      { ...connection, trace },
    );
  return {
    dispatch,
    /** What was noted until now, when the request has ended. */
    seen(): Pick<TrialOutcome, "timing" | "addresses" | "certificates"> {
      const ends = [trace.lookedUp, trace.connected, trace.secured, answered];
      const timing: TrialOutcome["timing"] = {};
      let from = trace.opened;
      for (const [n, part] of TRIAL_PARTS.entries()) {
        if (from === undefined) break;
        timing[part] = Math.round((ends[n] ?? performance.now()) - from);
        from = ends[n];
      }
      return { timing, addresses: trace.addresses ?? [], certificates: chainOf(trace.certificate) };
    },
  };
}

function chainOf(certificate: X509Certificate | undefined): TrialCertificate[] {
  const chain: X509Certificate[] = [];
  for (let next = certificate; next && chain.length < MAX_CERTIFICATES; next = next.issuerCertificate) {
    if (chain.at(-1)?.fingerprint256 === next.fingerprint256) break;
    chain.push(next);
  }
  return chain.map(({ subject, issuer, validFromDate, validToDate, subjectAltName = "" }) => ({
    subject: inOneLine(subject),
    issuer: inOneLine(issuer),
    notBefore: validFromDate,
    notAfter: validToDate,
    names: [...subjectAltName.matchAll(/(?:DNS|IP Address):([^,\s]+)/g)].map(([, name]) => name as string),
  }));
}

const inOneLine = (name: string | undefined) => (name ?? "").trim().replaceAll("\n", ", ");
