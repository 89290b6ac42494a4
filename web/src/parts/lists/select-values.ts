import type { MouseEvent } from "react";

/** A value of a select, and its text. */
export interface Choice {
  value: string;
  label: string;
}

/** Whether a filter has a value that is none of its choices, such as an outdated one in the page's URL. */
export function isUnlisted(choices: readonly Choice[], chosen: string): boolean {
  return chosen !== "" && choices.every(({ value }) => value !== chosen);
}

/**
 * The choices of a filter, and the value of the page's URL if it is none of them: the filter is shown and can be cleared.
 *
 * @param label the text of that value; defaults to the value
 */
export function withChosen(choices: readonly Choice[], chosen: string, label = chosen): Choice[] {
  return isUnlisted(choices, chosen) ? [{ value: chosen, label }, ...choices] : [...choices];
}

/**
 * The properties of a select's clear button. The library hides this button from keyboards and screen readers by default.
 * The button disappears when it is used, so it gives the focus to the field.
 *
 * @param label what the cleared field means: "Any state"
 */
export function clearButton(label: string) {
  return {
    "aria-label": label,
    "aria-hidden": false,
    tabIndex: 0,
    onClick: ({ currentTarget }: MouseEvent<HTMLButtonElement>) =>
      currentTarget.closest(".mantine-Input-wrapper")?.querySelector("input")?.focus(),
  } as const;
}
