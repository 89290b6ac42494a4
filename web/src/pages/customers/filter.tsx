import { Stack, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useState } from "react";
import { FilterSelect, TYPING_MS, withChosen } from "../../parts/filters.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { NAMES, useChoices, useHasCustomers } from "./chosen.tsx";

/** Another choice than a customer. */
export interface CustomerFilterProps {
  /** The text if no customer is chosen. */
  placeholder?: string;
  also?: { value: string; label: string };
}

/** Restricts a page to a customer in its URL. Nothing where there are no customers to tell apart. */
export function CustomerFilter({ placeholder = "Any customer", also }: CustomerFilterProps) {
  const [{ customer }, change] = useUrlFilters(NAMES);
  const [typed, setTyped] = useState("");
  const isChosen = typed === customer || typed === also?.label;
  const [search] = useDebouncedValue(isChosen ? "" : typed.trim(), TYPING_MS);
  const { customers = [], nextPageToken = "" } = useChoices(search) ?? {};
  const hasCustomers = useHasCustomers();
  if (!hasCustomers && customer === "") return null;
  const names = new Map(customers.map(({ userId, displayName }) => [userId, displayName]));
  const choices = [...names.keys()].map((userId) => ({ value: userId, label: userId }));
  return (
    <FilterSelect
      aria-label="Customer"
      placeholder={placeholder}
      w={{ base: "100%", xs: 220 }}
      data={withChosen(also ? [also, ...choices] : choices, customer)}
      value={customer}
      onChange={(chosen) => change({ customer: chosen, page: "" })}
      searchable
      onSearchChange={setTyped}
      // The service has searched.
      filter={({ options }) => options}
      // A search stops early where few customers match.
      nothingFoundMessage={nextPageToken === "" ? "No such customer" : "Type more of the user id"}
      renderOption={({ option }) => (
        <Stack gap={0}>
          <Text size="sm" style={{ overflowWrap: "anywhere" }}>
            {names.get(option.value) || option.label}
          </Text>
          {names.get(option.value) && <Dimmed size="xs">{option.label}</Dimmed>}
        </Stack>
      )}
    />
  );
}
