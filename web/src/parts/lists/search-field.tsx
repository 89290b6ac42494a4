import { CloseButton, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconSearch } from "@tabler/icons-react";
import { useEffect, useRef, useState } from "react";

/** The pause in typing after which the text is searched, in milliseconds. */
const TYPING_MS = 200;

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
}

/** Searches a list while the user types. Follows changes of `value`, such as by Back. */
export function SearchField({ value, onChange, label, placeholder, labelHidden }: SearchFieldProps) {
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
