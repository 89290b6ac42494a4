import { OWN_USERS } from "../contract/catalogue.ts";
import { invalidField, invalidFields } from "./errors/errors.ts";

/** The maximum length of a user id, in characters. */
export const MAX_USER_ID_CHARACTERS = 128;
/** A user id as it must be. */
const ALLOWED_USER_ID = new RegExp(`^[\\x21-\\x7e]{1,${MAX_USER_ID_CHARACTERS}}$`);
/** The characters allowed in a user id, for errors. */
const USER_ID_ALLOWED = "visible ASCII characters (no spaces)";

/** Checks a user id. Errors never repeat it, because it may be personal data. */
export function assertUserId(field: string, userId: string): void {
  if (ALLOWED_USER_ID.test(userId)) return;
  const problems: string[] = [];
  const { length } = [...userId];
  if (length > MAX_USER_ID_CHARACTERS) problems.push(`has ${length} characters`);
  const place = [...userId].findIndex((character) => !/^[\x21-\x7e]$/.test(character));
  if (place >= 0) problems.push(`has ${kindOf([...userId][place] as string)} as character ${place + 1}`);
  if (problems.length === 0) problems.push("is empty");
  throw invalidFields([
    {
      field,
      description: `${problems.join(" and ")}; allowed: 1 to ${MAX_USER_ID_CHARACTERS} ${USER_ID_ALLOWED}`,
    },
  ]);
}

/** Checks the user id of a customer. Those of the service's own events are refused: an erasure of such a customer would erase these events. */
export function assertCustomer(customer: string): void {
  assertUserId("customer", customer);
  const own = Object.values(OWN_USERS);
  if (!own.includes(customer)) return;
  throw invalidField(
    "customer",
    `must not be ${own.join(" or ")}, the users of the service's own events; publish the events of this customer with another user_id`,
  );
}

function kindOf(character: string): string {
  if (character === " ") return "a space";
  return /^\p{Cc}$/u.test(character) ? "a control character" : "a character outside ASCII";
}
