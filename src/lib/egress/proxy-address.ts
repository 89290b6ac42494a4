/** The address and the credentials of an outbound proxy. */
export interface ProxyAddress {
  protocol: "http" | "https" | "socks5";
  /** A host name in lower case, or an IP address without brackets. */
  host: string;
  port: number;
  credentials: { username: string; password: string } | undefined;
}
