import { isIP } from "node:net";
import { invisibleCharacter } from "../../contract/invisible-characters.ts";
import { InvalidTargetError, type TargetRules } from "../../contract/target-rules.ts";
import { type AddressGuard, AddressRefusedError, bareHost, HTTPS_PORT } from "../../lib/egress/index.ts";
import { type Guards, ofOwner } from "./guards.ts";

/** The maximum length of a URL, as given and as normalized, in characters. An entry of PostgreSQL's index of URLs has 2,704 bytes. */
export const MAX_URL_LENGTH = 2_048;

const SEND = "send a URL such as https://example.com/hooks";

/**
 * The rules for a webhook's URL: https, at most 2,048 characters, no surrounding white space, no invisible characters, no user or
 * password, no fragment, and no port or literal address that the guard of its customer, or of the operator, refuses. Host names are resolved and checked with each connection
 * instead. Removes one dot from the end of a host name.
 */
export function createTargetRules(guards: Guards): TargetRules {
  return {
    normalise(given, customer) {
      const most = `at most ${MAX_URL_LENGTH} are allowed`;
      if (given.length > MAX_URL_LENGTH) refuse(`has ${given.length} characters; ${most}`);
      // The URL is stored and shown as given.
      if (given !== given.trim()) refuse("begins or ends with white space; remove it");
      const invisible = invisibleCharacter(given);
      const control = "an invisible control or formatting character; remove it or percent-encode it";
      if (invisible) refuse(`contains ${invisible}, ${control}`);
      const isAbsolute = /^https:\/\/[^/\\]/i.test(given);
      const unreadable = isAbsolute
        ? "has no valid host name, or a port that is not from 1 to 65535"
        : "is not an absolute URL";
      const url = URL.parse(given) ?? refuse(`${unreadable}; ${SEND}`);
      if (url.protocol !== "https:") refuse(`begins with ${url.protocol}//; only https:// is allowed`);
      // URLs are shown in lists, logs and audit entries; credentials of request settings are not.
      const hasUser = url.username !== "" || url.password !== "";
      if (hasUser)
        refuse(
          "contains a user name or password, which is not allowed; remove it, and set it as Basic authentication with SetWebhookRequestSettings",
        );
      // HTTP clients do not send it.
      if (given.includes("#")) refuse("contains a fragment (#…), which is not allowed; remove it");
      url.hostname = url.hostname.replace(/\.$/, "");
      const hasHost = url.hostname !== "" && !url.hostname.endsWith(".");
      if (!hasHost) refuse(`has no valid host name; ${SEND}`);
      checkDestination(url, ofOwner(guards, customer));
      const { length } = url.href;
      if (length > MAX_URL_LENGTH) refuse(`has ${length} characters after percent-encoding; ${most}`);
      return url.href;
    },
  };
}

function refuse(problem: string): never {
  throw new InvalidTargetError(`url ${problem}`);
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
