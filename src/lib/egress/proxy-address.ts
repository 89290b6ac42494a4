/** An outbound proxy. */
export interface ProxyAddress {
  protocol: "http" | "https" | "socks5";
  /** A name or an address, without brackets. */
  host: string;
  port: number;
  credentials: { username: string; password: string } | undefined;
}
