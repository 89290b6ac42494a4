/** API keys and signing secrets, in whole or in part, wherever a caller put them, also percent-encoded. */
const SECRETS = /(?:(whk_)[\w-]+|(whsec_)[\w+/=%-]+)/g;

/** Replaces API keys and signing secrets in a text, so that no error or log line repeats them. */
export function hideSecrets(text: string): string {
  return text.replace(SECRETS, (_, key = "", secret = "") => `${key}${secret}…`);
}
