import { DURATION, TIMESTAMP } from "./field-types.ts";

/** The JSON forms of times and periods: what they match, and how errors describe them. The library checks the rest. */
export const TIME_FORMS: Record<string, { form: string; words: string }> = {
  [TIMESTAMP]: {
    form: String.raw`(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-4]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)`,
    words: "a time with a time zone, of the years 0001 to 9999, such as 2026-11-21T09:30:00Z",
  },
  [DURATION]: { form: String.raw`-?\d+(?:\.\d{1,9})?s`, words: "a number of seconds, such as 86400s" },
};
