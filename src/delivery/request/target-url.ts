import { isIP } from "node:net";
import { invisibleCharacter } from "../../contract/invisible-characters.ts";
import { InvalidTargetError, type TargetRules } from "../../contract/target-rules.ts";
import { type AddressGuard, AddressRefusedError } from "./address-guard.ts";

/** The maximum length of a URL, as given and as normalized, in characters. */
export const MAX_URL_LENGTH = 2_048;

/** The default port of https URLs. */
export const HTTPS_PORT = 443;

/** The host without the brackets of an IPv6 address, as the address guard expects it. */
export function bareHost(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

/**
 * The rules for a webhook's URL: https, at most 2,048 characters, no invisible characters, no user or password, no
 * fragment, and no port or literal address that the guard refuses. Host names are resolved and checked with each
 * connection instead.
 */
export function createTargetRules(guard: AddressGuard): TargetRules {
  return {
    normalise(given) {
      if (given.length > MAX_URL_LENGTH)
        throw new InvalidTargetError(
          `url has ${given.length} characters; at most ${MAX_URL_LENGTH} are allowed`,
        );
      if (given !== given.trim())
        throw new InvalidTargetError("url begins or ends with white space; remove it");
      const invisible = invisibleCharacter(given);
      if (invisible) {
        throw new InvalidTargetError(
          `url contains ${invisible}, an invisible control or formatting character; remove it or percent-encode it`,
        );
      }
      if (!URL.canParse(given))
        throw new InvalidTargetError(
          "url is not an absolute URL; send one such as https://example.com/hooks",
        );
      const url = new URL(given);
      if (url.protocol !== "https:")
        throw new InvalidTargetError(`url begins with ${url.protocol}//; only https:// is allowed`);
      if (url.username || url.password)
        throw new InvalidTargetError("url contains a user name or password, which is not allowed; remove it");
      if (url.hash || given.includes("#"))
        throw new InvalidTargetError("url contains a fragment (#…), which is not allowed; remove it");
      url.hostname = url.hostname.replace(/\.$/, "");
      if (url.hostname === "" || url.hostname.endsWith("."))
        throw new InvalidTargetError(
          "url has no valid host name; send a URL such as https://example.com/hooks",
        );
      checkDestination(url, guard);
      if (url.href.length > MAX_URL_LENGTH) {
        throw new InvalidTargetError(
          `url has ${url.href.length} characters after percent-encoding; at most ${MAX_URL_LENGTH} are allowed`,
        );
      }
      return url.href;
    },
  };
}

function checkDestination(url: URL, guard: AddressGuard): void {
  const host = bareHost(url.hostname);
  try {
    guard.checkPort(Number(url.port || HTTPS_PORT));
    if (isIP(host) !== 0) guard.check(host);
  } catch (error) {
    if (error instanceof AddressRefusedError) throw new InvalidTargetError(`url: ${error.message}`);
    throw error;
  }
}
