import { useQuery } from "@connectrpc/connect-query";
import { keepPreviousData } from "@tanstack/react-query";
import { CustomerService } from "../../../../gen/webhook/v1/customer_pb.ts";
import { useIsLimited, useMay, useOwnCustomer } from "../../api/session.tsx";
import { customerPage, PageLink } from "../../parts/inline.tsx";
import { useUrlFilters } from "../../parts/url-filters.ts";

/** The number of customers to choose from at once; others are found by typing. */
const CHOICES = 20;
/** The age up to which customers are not read again, in milliseconds. */
const FRESH_MS = 60_000;
/** The parameters of the page's URL. */
export const NAMES = ["customer", "page"] as const;

/** Some customers, for keys that see all of them. */
export function useChoices(search = "") {
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
