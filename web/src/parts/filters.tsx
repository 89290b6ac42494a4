import { CloseButton, Select, type SelectProps, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconSearch } from "@tabler/icons-react";
import { type MouseEvent, useEffect, useRef, useState } from "react";

/** The pause in typing after which the text is searched, in milliseconds. */
export const TYPING_MS = 200;

/** A search within a list. */
export interface SearchFieldProps {
  /** The searched text in the page's URL. */
  value: string;
  /** Receives the typed text once the typing pauses, without spaces around it. */
  onChange: (text: string) => void;
  /** The label: "Search keys". */
  label: string;
  placeholder?: string;
  /** Whether the label is read out only. */
  labelHidden?: boolean;
  /** What the search finds. */
  title?: string;
}

/** Searches a list while the user types. Follows changes of `value`, such as by Back. */
export function SearchField({ value, onChange, label, placeholder, labelHidden, title }: SearchFieldProps) {
  const [text, setText] = useState(value);
  const field = useRef<HTMLInputElement>(null);
  /** The texts told since the one that `value` had last, oldest first. */
  const told = useRef([value]);
  const tell = useDebouncedCallback((typed: string) => {
    // A space at the end stays in the field: more words may follow.
    const searched = typed.trim();
    told.current.push(searched);
    onChange(searched);
  }, TYPING_MS);
  useEffect(() => {
    // What comes back of one's own typing may be older than what has been typed and told since.
    const place = told.current.lastIndexOf(value);
    told.current = place < 0 ? [value] : told.current.slice(place);
    if (place < 0) setText(value);
  }, [value]);

  function type(typed: string) {
    setText(typed);
    tell(typed);
  }

  function clear() {
    // The button disappears with the focus.
    field.current?.focus();
    type("");
  }

  return (
    <TextInput
      ref={field}
      type="search"
      {...(labelHidden ? { "aria-label": label } : { label })}
      placeholder={placeholder}
      title={title}
      value={text}
      onChange={(event) => type(event.currentTarget.value)}
      leftSection={<IconSearch size={16} />}
      rightSection={text && <CloseButton size="sm" aria-label="Clear the search" onClick={clear} />}
      // The button above does what the browser's own would.
      styles={{ input: { appearance: "textfield" } }}
      autoComplete="off"
      spellCheck={false}
    />
  );
}

/** The maximum number of choices that a list shows at once: more would be slow, and are found by typing. */
export const MAX_CHOICES = 200;

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

/** A filter with a value of the page's URL, "" if not set. */
export interface FilterSelectProps extends Omit<SelectProps, "value" | "onChange" | "clearable"> {
  /** The text if the filter is not set, also of the button that clears it: "Any state". */
  placeholder: string;
  /** The label of that button, if it is another one. */
  clearLabel?: string;
  value: string;
  onChange: (value: string) => void;
}

/** Chooses one value of a filter, or none. */
export function FilterSelect({ placeholder, clearLabel, value, onChange, ...select }: FilterSelectProps) {
  return (
    <Select
      placeholder={placeholder}
      value={value || null}
      onChange={(chosen) => onChange(chosen ?? "")}
      clearable
      clearButtonProps={clearButton(clearLabel ?? placeholder)}
      {...select}
    />
  );
}
