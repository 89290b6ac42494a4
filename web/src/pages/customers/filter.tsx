import { useQuery } from "@connectrpc/connect-query";
import { Stack, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData } from "@tanstack/react-query";
import { useState } from "react";
import { CustomerService } from "../../../../gen/webhook/v1/customer_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useIsLimited, useMay, useOwnCustomer } from "../../api/session.tsx";
import { FilterSelect, TYPING_MS, useUrlFilters, withChosen } from "../../parts/filters.tsx";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";

/** The number of customers to choose from at once; others are found by typing. */
const CHOICES = 20;
/** The age up to which customers are not read again, in milliseconds. */
const FRESH_MS = 60_000;
const NAMES = ["customer", "page"] as const;

/** The page of a customer. */
export const customerPage = (id: string) => listPage(PAGE_PATHS.customer, { id });

/** Some customers, for keys that see all of them. */
function useChoices(search = "") {
  const reads = useMay("Read_Administrative_Data");
  const enabled = !useIsLimited() && reads;
  const { data } = useQuery(
    CustomerService.method.listCustomers,
    { pageSize: CHOICES, search },
    { enabled, staleTime: FRESH_MS, placeholderData: keepPreviousData },
  );
  return data;
}

/** Whether lists tell customers apart: not for limited keys, and not while only events name customers. */
export function useHasCustomers(): boolean {
  const first = useChoices();
  return !!first && (first.nextPageToken !== "" || first.customers.some(({ created }) => created));
}

/** The customer of the page's URL as a part of requests; nothing without one. */
export function useCustomerFilter(): { customer?: string } {
  const [{ customer }] = useUrlFilters(NAMES);
  return customer ? { customer } : {};
}

/** The choice of all webhooks, with those of customers, in the list of webhooks. No user_id has a space. */
export const ALL_CUSTOMERS = { value: "all customers", label: "All, of customers too" };

/** The filter of a list of webhooks that has those that the page's figures count. */
export function useListedCustomer(): { customer?: string } {
  const chosen = useCustomerFilter();
  const hasCustomers = useHasCustomers();
  return hasCustomers && chosen.customer === undefined ? { customer: ALL_CUSTOMERS.value } : chosen;
}

/** A filter of the list of webhooks as a part of requests. */
export function webhooksOf(chosen: { customer?: string }): { customer?: string; withoutCustomer?: boolean } {
  if (chosen.customer === undefined) return { withoutCustomer: true };
  return chosen.customer === ALL_CUSTOMERS.value ? {} : chosen;
}

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

/** A customer, with a link to its page for keys that may see it. */
export function CustomerLink({ id, inText = false }: { id: string; inText?: boolean }) {
  const own = useOwnCustomer();
  const hasCustomers = useHasCustomers();
  if (own !== id && !hasCustomers) return id;
  return (
    <PageLink
      to={customerPage(id)}
      title="Customer"
      {...(inText ? { inherit: true, underline: "always" } : {})}
      style={{ overflowWrap: "anywhere" }}
    >
      {id}
    </PageLink>
  );
}
