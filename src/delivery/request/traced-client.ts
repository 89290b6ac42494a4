import type { X509Certificate } from "node:crypto";
import type { TrialCertificate, TrialOutcome } from "../../contract/target-rules.ts";
import { type ConnectionTrace, type Dispatching, partsOf } from "../../lib/egress/index.ts";

/** The maximum number of certificates of a chain that are shown. */
const MAX_CERTIFICATES = 10;

/** Creates a client that notes how its request went. For one request. @param client has no connections yet */
export function tracedClient(client: Dispatching) {
  const trace: ConnectionTrace = { certificate: undefined };
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
      const { addresses = [], certificate } = trace;
      return { timing: partsOf(trace, answered), addresses, certificates: chainOf(certificate) };
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
