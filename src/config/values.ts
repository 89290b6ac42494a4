import { isIP } from "node:net";
import { makeValidator } from "envalid";
import ipaddr from "ipaddr.js";
import addressParser from "nodemailer/lib/addressparser";
import type { Network, ProxyAddress } from "../lib/egress/index.ts";
import { parseTarget } from "../lib/pg/index.ts";
import { basePathOf } from "./base-path.ts";

const FLAGS: Record<string, boolean> = Object.fromEntries([
  ...["true", "t", "yes", "y", "on", "1"].map((text) => [text, true]),
  ...["false", "f", "no", "n", "off", "0"].map((text) => [text, false]),
]);

/** `true` or `false`, as programs and people write them: also `True`, `yes`, `on`, `1`. */
export const flag = makeValidator<boolean>((input) => {
  const value = FLAGS[String(input).trim().toLowerCase()];
  if (value === undefined) throw new Error(`"${input}" is neither true nor false; write one of these`);
  return value;
});

/** One of some words in lower case, which may be written in upper case. @param aliases other spellings of them */
export const choice = <const T extends string>(
  words: readonly T[],
  aliases: Readonly<Record<string, T>> = {},
) =>
  makeValidator<T>((input) => {
    const given = String(input).trim().toLowerCase();
    const word = words.find((each) => each === given) ?? aliases[given];
    if (word === undefined) throw new Error(`"${input}" is not allowed; allowed: ${words.join(", ")}`);
    return word;
  });

const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DURATION_PARTS = /(\d+(?:\.\d+)?)(ms|s|m|h|d)/g;

/**
 * A duration, such as `500ms`, `60s`, `5m`, `1h30m`, in milliseconds. A number without a unit is refused: some programs count seconds,
 * others milliseconds.
 *
 * @param range minimum and maximum, in milliseconds
 */
export const duration = (range: { min: number; max: number }) =>
  makeValidator<number>((input) => {
    const text = String(input).trim();
    const parts = [...text.matchAll(DURATION_PARTS)];
    if (text === "" || text.replaceAll(DURATION_PARTS, "") !== "")
      throw new Error(`"${input}" is not a duration; write it like 500ms, 60s, 5m or 1h30m`);
    const ms = Math.round(
      parts.reduce((sum, [, count, unit = ""]) => sum + Number(count) * (UNITS[unit] as number), 0),
    );
    if (ms < range.min || ms > range.max) {
      throw new Error(
        `"${input}" is out of range; allowed: from ${inUnit(range.min)} to ${inUnit(range.max)}`,
      );
    }
    return ms;
  });

/** A duration in the largest unit up to hours of which it is a whole number: `24h`, `0ms`. */
function inUnit(ms: number): string {
  const units = Object.entries(UNITS).filter(([unit]) => unit !== "d");
  const [unit, length] = units.findLast(([, each]) => ms >= each && ms % each === 0) ?? ["ms", 1];
  return `${ms / length}${unit}`;
}

/**
 * An amount of memory in bytes: `64MiB`, as Kubernetes writes it, `64Mi`, or `67108864`. Units of the SI, such as `64MB`, have powers of
 * 1,000.
 *
 * @param range minimum and maximum, in bytes
 */
export const bytes = (range: { min: number; max: number }) =>
  makeValidator<number>((input) => {
    const [, count, prefix = "", binary] =
      /^(\d+(?:\.\d+)?) ?(?:([kKMG])(i?))?B?$/.exec(String(input).trim()) ?? [];
    if (count === undefined)
      throw new Error(`"${input}" is not an amount of memory; write it like 64MiB or 1GiB`);
    const value = Math.round(
      Number(count) * (binary ? 1_024 : 1_000) ** " KMG".indexOf(prefix.toUpperCase() || " "),
    );
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

/** An address that usually names a network, whose length is missing. */
const NETWORK_ADDRESS = /\.0$|::$/;

/** A comma-separated list of CIDRs and addresses, such as `10.0.0.0/8,fd00::/8,192.168.1.7`. */
export const networks = makeValidator<Network[]>((input) =>
  listed(String(input)).map((part) => {
    try {
      if (part.includes("/") || NETWORK_ADDRESS.test(part)) return ipaddr.parseCIDR(part) as Network;
      const address = ipaddr.parse(part);
      return [address, address.kind() === "ipv4" ? 32 : 128] as Network;
    } catch {
      throw new Error(`"${part}" is not a network; write it like 10.0.0.0/8, fd00::/8 or 192.168.1.7`);
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
      `"${part}" is not a host name; write it like receiver.internal or *.internal, without scheme and port (addresses belong in DELIVERY_ALLOWED_NETWORKS)`,
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

/** The URL of an outbound proxy, or its host and port, as curl takes it. Errors never repeat it, because it can contain a password. */
export const proxyAddress = makeValidator<ProxyAddress>((input) => {
  const text = String(input).trim();
  // Who looks up names is another setting, because the service cannot check addresses then.
  if (/^socks5h:/i.test(text))
    throw new Error(
      "the value begins with socks5h://; write socks5:// and, if the proxy shall look up host names, DELIVERY_PROXY_DNS=remote",
    );
  const url = URL.parse(text.includes("://") ? text : `http://${text}`);
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

/**
 * An SMTP server's URL, without a query: its options could turn off what the service requires, such as the check of certificates. Errors
 * never repeat it, because it can contain a password.
 */
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

/** An e-mail address, with a display name or without. */
export const emailAddress = makeValidator<string>((input) => {
  const [address, another] = parseAddresses(String(input));
  if (address === undefined || another !== undefined)
    throw new Error(`"${input}" is not one e-mail address; write it like Webhooks <webhooks@example.com>`);
  return address;
});

/** A comma-separated list of e-mail addresses, each with a display name or without. */
export const emailAddresses = makeValidator<string[]>((input) => parseAddresses(String(input)));

/** The addresses of a header such as From (RFC 5322, 3.4): `Webhooks <hooks@example.com>`. */
function parseAddresses(text: string): string[] {
  return addressParser(text, { flatten: true }).map(({ name, address }) => {
    if (!/^[^\s@,;:<>()"\p{C}]+@[^\s@,;:<>()"\p{C}]+$/u.test(address) || /\p{C}/u.test(name))
      throw new Error(
        `"${address || name}" is not an e-mail address; write it like ops@example.com or Operations <ops@example.com>`,
      );
    return name === "" ? address : `"${name.replaceAll(/["\\]/g, "\\$&")}" <${address}>`;
  });
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
