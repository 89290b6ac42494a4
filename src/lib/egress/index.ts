/** Outbound HTTPS: name resolution, allowed addresses, connections, TLS, and proxies. */
export {
  type AddressGuard,
  AddressRefusedError,
  bareHost,
  createAddressGuard,
  HTTPS_PORT,
  type Network,
} from "./address-guard.ts";
export { type ConnectionTrace, partsOf } from "./connection-trace.ts";
export type { Connections, Dispatching } from "./connections.ts";
export { contentCoding, decompressed } from "./content-coding.ts";
export { causeOfFault, describeFault, type FaultCause, faultCode, isTlsFault } from "./faults.ts";
export { createHttpClient, HANDSHAKES, MAX_RESPONSE_BYTES } from "./http-client.ts";
export { NameResolver, type Resolver } from "./name-resolver.ts";
export { OutboundProxy } from "./outbound-proxy.ts";
export { Pacer } from "./pacer.ts";
export type { ProxyAddress } from "./proxy-address.ts";
export { ProxyRefusedError, ProxyUnavailableError } from "./proxy-error.ts";
export { type TlsIdentity, tlsIdentity } from "./tls-identity.ts";
