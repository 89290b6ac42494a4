import { isIP } from "node:net";
import { invisibleCharacter } from "../../contract/invisible-characters.ts";
import { InvalidTargetError, type TargetRules } from "../../contract/target-rules.ts";
import { type AddressGuard, AddressRefusedError } from "./address-guard.ts";

/** The longest address, as given and as requested, in characters. */
export const MAX_URL_LENGTH = 2_048;

/** The port of an https URL without one. */
export const HTTPS_PORT = 443;

/** The host of an address as the address guard sees it: IPv6 without its brackets. */
export function bareHost(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

/**
 * The rules for a webhook's address: https, at most 2,048 characters, no invisible characters, no user or password, no
 * fragment, no port and no literal address that the guard refuses. Names are judged when they are dialled, by what they
 * resolve to then.
 */
export function createTargetRules(guard: AddressGuard): TargetRules {
  return {
    normalise(given) {
      if (given.length > MAX_URL_LENGTH)
        throw new InvalidTargetError(`url is longer than ${MAX_URL_LENGTH} characters`);
      if (given !== given.trim()) throw new InvalidTargetError("url begins or ends with white space");
      const invisible = invisibleCharacter(given);
      if (invisible) {
        throw new InvalidTargetError(
          `url holds ${invisible}, a control or formatting character, which is not shown; remove it or percent-encode it`,
        );
      }
      if (!URL.canParse(given))
        throw new InvalidTargetError("url is not an absolute URL such as https://example.com/hooks");
      const url = new URL(given);
      if (url.protocol !== "https:")
        throw new InvalidTargetError(`url must begin with https://, not ${url.protocol}//`);
      if (url.username || url.password) throw new InvalidTargetError("url must not hold a user or password");
      if (url.hash || given.includes("#")) throw new InvalidTargetError("url must not have a fragment (#…)");
      url.hostname = url.hostname.replace(/\.$/, "");
      if (url.hostname === "" || url.hostname.endsWith("."))
        throw new InvalidTargetError("url has no usable host");
      checkDestination(url, guard);
      if (url.href.length > MAX_URL_LENGTH) {
        throw new InvalidTargetError(
          `url is longer than ${MAX_URL_LENGTH} characters once it is percent-encoded`,
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
