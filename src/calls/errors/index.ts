/** What callers are told: errors with a reason, without secrets. */
export {
  databaseAway,
  inJsonNames,
  invalidField,
  invalidFields,
  isTooLarge,
  type OnRefused,
  reasonOf,
  refusal,
  startingError,
  stateNotFit,
  statusNameOf,
  stoppingError,
  toConnectError,
  withReason,
} from "./errors.ts";
export { hideSecrets } from "./hidden-secrets.ts";
export { aboutField, plainJsonMessage, withoutExcerpt } from "./json-messages.ts";
export { speaksJson } from "./speaks-json.ts";
