import { isIP } from "node:net";
import { makeValidator } from "envalid";
import ipaddr from "ipaddr.js";
import type { Network, ProxyAddress } from "../lib/egress/index.ts";
import { basePathOf } from "./base-path.ts";
import { parseTarget } from "../lib/pg/index.ts";

const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * A duration, such as `500ms`, `60s`, `5m`, `1h`, in milliseconds.
 *
 * @param range minimum and maximum, in milliseconds
 */
export const duration = (range: { min: number; max: number }) =>
  makeValidator<number>((input) => {
    const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(String(input).trim());
    if (!match) throw new Error(`"${input}" is not a duration; write it like 500ms, 60s, 5m or 1h`);
    const ms = Math.round(Number(match[1]) * (UNITS[match[2] as string] as number));
    if (ms < range.min || ms > range.max) {
      throw new Error(`"${input}" is out of range; allowed: from ${range.min}ms to ${range.max}ms`);
    }
    return ms;
  });

const BYTE_UNITS: Record<string, number> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** An amount of memory, such as `64MiB` or `1GiB`, in bytes. @param range minimum and maximum, in bytes */
export const bytes = (range: { min: number; max: number }) =>
  makeValidator<number>((input) => {
    const match = /^(\d+(?:\.\d+)?)(B|KiB|MiB|GiB)$/.exec(String(input).trim());
    if (!match) throw new Error(`"${input}" is not an amount of memory; write it like 64MiB or 1GiB`);
    const value = Math.round(Number(match[1]) * (BYTE_UNITS[match[2] as string] as number));
    if (value < range.min || value > range.max) {
      const [min, max] = [range.min, range.max].map((limit) => `${limit / 2 ** 20}MiB`);
      throw new Error(`"${input}" is out of range; allowed: from ${min} to ${max}`);
    }
    return value;
  });

/** An integer within a range. */
export const integer = (range: { min: number; max: number }) =>
  makeValidator<number>((input) => {
    const value = Number(input);
    if (!/^-?\d+$/.test(String(input).trim()) || value < range.min || value > range.max) {
      throw new Error(`"${input}" is not a whole number from ${range.min} to ${range.max}`);
    }
    return value;
  });

/** A number within a range. */
export const number = (range: { min: number; max: number }) =>
  makeValidator<number>((input) => {
    const value = Number(input);
    if (!Number.isFinite(value) || value < range.min || value > range.max) {
      throw new Error(`"${input}" is not a number from ${range.min} to ${range.max}`);
    }
    return value;
  });

/** A comma-separated list of CIDRs, such as `10.0.0.0/8,fd00::/8`. */
export const networks = makeValidator<Network[]>((input) =>
  listed(String(input)).map((part) => {
    try {
      return ipaddr.parseCIDR(part) as Network;
    } catch {
      throw new Error(`"${part}" is not a network; write it like 10.0.0.0/8 or fd00::/8`);
    }
  }),
);

/** A comma-separated list of TCP ports, such as `6379,9200`. */
export const ports = makeValidator<number[]>((input) =>
  listed(String(input)).map((part) => {
    const port = Number(part);
    if (/^\d{1,5}$/.test(part) && port >= 1 && port <= 65_535) return port;
    throw new Error(`"${part}" is not a port; write whole numbers from 1 to 65535, separated by commas`);
  }),
);

/** A comma-separated list of host names, and of `*.` with a name for all names below it. In lower case, as in URLs. */
export const hostPatterns = makeValidator<string[]>((input) =>
  listed(String(input)).map((part) => {
    const { wildcard = "", name = "" } =
      /^(?<wildcard>\*\.)?(?<name>[^*:/?#@[\]\s]+?)\.?$/.exec(part)?.groups ?? {};
    const host = URL.parse(`https://${name}`)?.hostname ?? "";
    if (name !== "" && host !== "" && isIP(host) === 0 && !/^\.|\.\.|\.$/.test(host)) return wildcard + host;
    throw new Error(
      `"${part}" is not a host name; write it like receiver.internal or *.internal (addresses belong in DELIVERY_ALLOWED_NETWORKS)`,
    );
  }),
);

/** 32 bytes as base64 or hex. Errors never repeat the value. */
export const secretKey = makeValidator<Buffer>((input) => parseSecretKey(String(input)));

/** A comma-separated list of keys in the format of `secretKey`. */
export const secretKeys = makeValidator<Buffer[]>((input) =>
  listed(String(input)).map((part) => parseSecretKey(part)),
);

function parseSecretKey(input: string): Buffer {
  const text = input.trim();
  const key = /^[0-9a-f]{64}$/i.test(text) ? Buffer.from(text, "hex") : Buffer.from(text, "base64");
  if (key.length !== 32) {
    throw new Error(
      "the value is not a key; it must be 32 bytes as base64 or hex; generate one with `openssl rand -base64 32`",
    );
  }
  return key;
}

/** The non-empty parts of a comma-separated list. */
function listed(text: string): string[] {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");
}

/** The minimum length of an operator-chosen API key, in characters. */
const MIN_API_KEY_LENGTH = 32;
/** The maximum length of an operator-chosen API key, in characters. */
const MAX_API_KEY_LENGTH = 200;

/** An operator-chosen API key, long enough to resist guessing. Errors never repeat the value. */
export const apiKeySecret = makeValidator<string>((input) => {
  const text = String(input);
  if (!/^[\x21-\x7e]*$/.test(text) || text.length < MIN_API_KEY_LENGTH || text.length > MAX_API_KEY_LENGTH) {
    throw new Error(
      `the key has ${text.length} characters; it must be ${MIN_API_KEY_LENGTH} to ${MAX_API_KEY_LENGTH} visible ASCII characters without spaces; generate one with \`openssl rand -hex 24\``,
    );
  }
  return text;
});

/** A PostgreSQL connection URL. Errors never repeat it, because it can contain a password. @param writes as in `parseTarget` */
const connectionUrl = (writes: boolean) =>
  makeValidator<string>((input) => {
    const text = String(input);
    parseTarget(text, writes);
    return text;
  });

/** The connection URL of a PostgreSQL that takes writes. */
export const postgresUrl = connectionUrl(true);
/** The connection URL of a PostgreSQL that is only read. */
export const replicaUrl = connectionUrl(false);

/** The URL of a page, for links to it. Errors never repeat it, because it can contain a password. */
export const pageUrl = makeValidator<string>((input) => {
  const text = String(input).trim();
  if (/^https?:\/\//i.test(text) && URL.canParse(text)) return text;
  throw new Error("the value is not the URL of a page; write it like https://temporal-ui.example");
});

/** The path prefix at which a proxy serves the API and the settings page. */
export const basePath = makeValidator<string>((input) => {
  const path = basePathOf(String(input));
  if (path !== undefined) return path;
  throw new Error(
    `"${input}" is not a path prefix; write it like /webhooks, with letters, digits, "-", ".", "_" and "~", and not /docs, /openapi.json, /healthz or /readyz, which are paths of the service itself`,
  );
});

/** The default ports of proxies, by scheme. */
const PROXY_PORTS: Record<string, number> = { http: 80, https: 443, socks5: 1080 };
const PROXY_FORM = "write it like http://user:password@proxy.example:3128 (or https://, socks5://)";
/** The maximum length of a user or password of SOCKS5, in bytes (RFC 1929). */
const MAX_CREDENTIAL_BYTES = 255;

/** The URL of an outbound proxy. Errors never repeat it, because it can contain a password. */
export const proxyAddress = makeValidator<ProxyAddress>((input) => {
  const url = URL.parse(String(input).trim());
  const protocol = url?.protocol.slice(0, -1) ?? "";
  const defaultPort = PROXY_PORTS[protocol];
  if (!url || defaultPort === undefined || url.hostname === "")
    throw new Error(`the value is not the URL of a proxy; ${PROXY_FORM}`);
  if (!["", "/"].includes(url.pathname) || url.search !== "" || url.hash !== "")
    throw new Error(`the proxy's URL has a path, query or fragment; ${PROXY_FORM}`);
  const credentials = proxyCredentials(url);
  const parts = credentials ? [credentials.username, credentials.password] : [];
  if (protocol === "socks5" && parts.some((part) => !fitsSocks(part))) {
    throw new Error(
      `SOCKS5 allows a user and a password of 1 to ${MAX_CREDENTIAL_BYTES} bytes each; ${PROXY_FORM}`,
    );
  }
  return {
    protocol: protocol as ProxyAddress["protocol"],
    host: url.hostname.replace(/^\[|\]$/g, "").toLowerCase(),
    port: url.port === "" ? defaultPort : Number(url.port),
    credentials,
  };
});

function proxyCredentials({ username, password }: URL): ProxyAddress["credentials"] {
  if (username === "" && password === "") return undefined;
  try {
    return { username: decodeURIComponent(username), password: decodeURIComponent(password) };
  } catch {
    throw new Error(
      "the proxy's user or password has an invalid percent encoding; encode % as %25, @ as %40",
    );
  }
}

function fitsSocks(text: string): boolean {
  const bytes = Buffer.byteLength(text);
  return bytes >= 1 && bytes <= MAX_CREDENTIAL_BYTES;
}

/** An SMTP server's URL. Errors never repeat it, because it can contain a password. */
export const smtpUrl = makeValidator<string>((input) => {
  const text = String(input);
  const url = /^smtps?:\/\//.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  if (
    !url?.hostname ||
    !isDecodable(`${url.username}${url.password}`) ||
    !/^\/?$/.test(url.pathname) ||
    url.search !== "" ||
    url.hash !== ""
  ) {
    throw new Error(
      "the value is not the URL of an SMTP server; write it like smtps://user:password@host:465 or smtp://host:587, with special characters of the password as %xx",
    );
  }
  return text;
});

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

/** An e-mail address without a display name. */
export const emailAddress = makeValidator<string>((input) => parseAddress(String(input).trim()));

/** A comma-separated list of e-mail addresses. */
export const emailAddresses = makeValidator<string[]>((input) => listed(String(input)).map(parseAddress));

function parseAddress(text: string): string {
  if (/^[^\s@,;:<>()"\p{C}]+@[^\s@,;:<>()"\p{C}]+$/u.test(text)) return text;
  throw new Error(`"${text}" is not an e-mail address; write it like ops@example.com`);
}

/** The name of a Worker Deployment of Temporal, which separates it from a build id by a dot or a colon. */
export const deploymentName = makeValidator<string>((input) => {
  const name = String(input).trim();
  if (/^[\w/-]{1,200}$/.test(name) && !name.startsWith("__")) return name;
  throw new Error(
    `"${name}" is not a name of a Worker Deployment; use 1 to 200 letters, digits, "-", "_" and "/", such as webhook-service`,
  );
});

/** The build id of a version in a Worker Deployment of Temporal. */
export const buildId = makeValidator<string>((input) => {
  const id = String(input).trim();
  if (/^[\w.+-]{1,200}$/.test(id) && !id.startsWith("__")) return id;
  throw new Error(
    `"${id}" is not a build id; use 1 to 200 letters, digits, "-", "_", "+" and ".", such as 1.4.0 or a commit`,
  );
});
