import { useInfiniteQuery } from "@connectrpc/connect-query";
import { Box, Button, Group, Text } from "@mantine/core";
import { IconUsers } from "@tabler/icons-react";
import { useEffect } from "react";
import { Link } from "react-router";
import { type Customer, CustomerService } from "../../../../gen/webhook/v1/customer_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay } from "../../api/session.tsx";
import { Loading } from "../../parts/failure.tsx";
import { SearchField } from "../../parts/filters.tsx";
import { customerPage, Dimmed, PageLink } from "../../parts/inline.tsx";
import { Listing } from "../../parts/listing.tsx";
import { Empty, NothingFound, Pages } from "../../parts/lists.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { CustomerBadges } from "../../parts/states.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { countedInWords } from "./customer-facts.tsx";

/** The number of items per page. */
const PAGE_SIZE = 50;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;
const FILTERS = ["search"] as const;

/** The customers, searched by the service. */
export default function CustomersPage() {
  const [{ search }, change] = useUrlFilters(FILTERS);
  const managesKeys = useMay("Manage_Api_Keys");
  const list = useInfiniteQuery(
    CustomerService.method.listCustomers,
    { pageSize: PAGE_SIZE, pageToken: "", search },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: REFRESH_MS,
    },
  );
  const found = list.data?.pages.flatMap((page) => page.customers);
  const { hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage } = list;
  const goesOn = found?.length === 0 && hasNextPage && !isFetchNextPageError;
  useEffect(() => {
    // A page of a search may be empty before the last one.
    if (goesOn && !isFetchingNextPage) void fetchNextPage();
  }, [goesOn, isFetchingNextPage, fetchNextPage]);

  return (
    <>
      <PageTitle
        title="Customers"
        compact
        description="Each customer’s webhooks receive its own events only, and its API keys see nothing of others."
      />
      <Box maw={{ sm: 320 }} mb="xs">
        <SearchField
          label="Search customers"
          labelHidden
          placeholder="Start of the user id, or name"
          value={search}
          onChange={(text) => change({ search: text }, { replace: true })}
        />
      </Box>
      <Pages
        list={list}
        items={goesOn ? undefined : found}
        of={["customer", "customers"]}
        failed="Could not load the customers"
        loading={<Loading lines={8} height={40} />}
        empty={
          search ? (
            <NothingFound of="customer" onClear={() => change({ search: "" })}>
              No customer’s user id begins with “{search}”, and no name contains it.
            </NothingFound>
          ) : (
            <Empty
              icon={<IconUsers />}
              title="No customers yet"
              action={
                managesKeys && (
                  <Button component={Link} to={PAGE_PATHS.keys} variant="default">
                    API keys
                  </Button>
                )
              }
            >
              A customer needs no registration: create an API key with its user id, or publish an event that
              has it.
            </Empty>
          )
        }
      >
        {(customers) => <CustomerList customers={customers} />}
      </Pages>
    </>
  );
}

function CustomerList({ customers }: { customers: readonly Customer[] }) {
  const name = ({ userId, displayName }: Customer) => (
    <div>
      <PageLink to={customerPage(userId)} fw={550} style={{ overflowWrap: "anywhere" }}>
        {displayName || userId}
      </PageLink>
      {displayName && (
        <Dimmed size="xs" style={{ overflowWrap: "anywhere" }}>
          {userId}
        </Dimmed>
      )}
    </div>
  );
  const state = (customer: Customer) => <CustomerBadges customer={customer} />;
  return (
    <Listing
      aria-label="Customers"
      items={customers}
      keyOf={({ userId }) => userId}
      minWidth={640}
      columns={[
        { name: "Customer", cell: name },
        { name: "State", cell: state },
        { name: "Webhooks", ta: "right", cell: ({ counts }) => counts?.webhooks.toLocaleString() },
        { name: "Keys", ta: "right", cell: ({ counts }) => countedInWords(counts?.apiKeys) },
        { name: "Pending", ta: "right", cell: ({ counts }) => countedInWords(counts?.pendingDeliveries) },
        { name: "Retrying", ta: "right", cell: ({ counts }) => countedInWords(counts?.retryingDeliveries) },
        { name: "Created", cell: ({ created }) => <Time value={created} relative otherwise="By an event" /> },
      ]}
      cardsBelow="md"
      card={(customer) => {
        const { webhooks = 0, apiKeys, pendingDeliveries, retryingDeliveries } = customer.counts ?? {};
        return (
          <>
            <Group justify="space-between" align="flex-start" gap="xs">
              {name(customer)}
              {state(customer)}
            </Group>
            <Text size="sm">
              {countOf(webhooks, "webhook", "webhooks")}, {countedInWords(apiKeys)} API keys,{" "}
              {countedInWords(pendingDeliveries)} pending, {countedInWords(retryingDeliveries)} retrying
            </Text>
            <Dimmed size="xs">
              {customer.created ? (
                <>
                  Created <Time value={customer.created} />
                </>
              ) : (
                "Made by an event"
              )}
            </Dimmed>
          </>
        );
      }}
    />
  );
}
