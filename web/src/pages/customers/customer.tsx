import { Code, ConnectError } from "@connectrpc/connect";
import { useQuery } from "@connectrpc/connect-query";
import { Button, Grid, Stack } from "@mantine/core";
import { IconGauge, IconPlus, IconUserOff } from "@tabler/icons-react";
import { Link } from "react-router";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { type Customer, CustomerService } from "../../../../gen/webhook/v1/customer_pb.ts";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { permissionName } from "../../../../src/contract/permissions.ts";
import { useChange, useLive } from "../../api/queries.ts";
import { useIsLimited, useMay } from "../../api/session.tsx";
import { FormButton } from "../../parts/dialogs.tsx";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { DataTable } from "../../parts/listing.tsx";
import { Empty } from "../../parts/lists.tsx";
import { BackLink, PageTitle, Section } from "../../parts/page.tsx";
import { periodOf } from "../../parts/periods.tsx";
import { QuotasForm, quotasInWords } from "../../parts/quotas.tsx";
import { Time } from "../../parts/time.tsx";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { DeliveryList } from "../deliveries/delivery-list.tsx";
import { WebhookTable } from "../webhooks/list/webhook-list.tsx";
import { CustomerActions } from "./change-customer.tsx";
import { CustomerFacts, CustomerNotices } from "./customer-facts.tsx";

/** The number of items that each section shows. */
const SHOWN = 10;
/** The intervals between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;
const ERASING_REFRESH_MS = 2_000;
const NAMES = ["id"] as const;

/** The page of a customer. */
export default function CustomerPage() {
  const [{ id }] = useUrlFilters(NAMES);
  const isLimited = useIsLimited();
  return (
    <>
      {!isLimited && <BackLink to={PAGE_PATHS.customers}>All customers</BackLink>}
      {/* Another customer is another page. */}
      <Known key={id} id={id} />
    </>
  );
}

function Known({ id }: { id: string }) {
  const query = useQuery(
    CustomerService.method.getCustomer,
    { customer: id },
    { refetchInterval: ({ state }) => (isErasing(state.data?.customer) ? ERASING_REFRESH_MS : REFRESH_MS) },
  );
  const isMissing = query.error && ConnectError.from(query.error).code === Code.NotFound;
  return (
    <>
      {!query.data?.customer && <PageTitle title={id} />}
      {isMissing ? (
        <Empty icon={<IconUserOff />} title="There is no such customer">
          No API key, no setting and no event names this user id.
        </Empty>
      ) : (
        <Refreshed query={query} loading={<Loading lines={10} height={28} />}>
          {({ customer }) => customer && <CustomerDetails customer={customer} />}
        </Refreshed>
      )}
    </>
  );
}

const isErasing = (customer: Customer | undefined) =>
  customer?.erasure !== undefined && customer.erasure.finished === undefined;

/** The sections of a customer's page, and for the operator the actions. */
function CustomerDetails({ customer }: { customer: Customer }) {
  const { userId, displayName } = customer;
  const manages = useMay("Manage_Customers");
  const managesKeys = useMay("Manage_Api_Keys");
  return (
    <>
      <PageTitle
        title={displayName || userId}
        description={displayName && userId}
        actions={manages && <CustomerActions customer={customer} />}
      />
      <Stack gap="lg">
        <CustomerNotices customer={customer} />
        <Grid gap="lg">
          <Grid.Col span={{ base: 12, lg: 7 }}>
            <CustomerFacts customer={customer} />
          </Grid.Col>
          <Grid.Col span={{ base: 12, lg: 5 }}>
            <Quotas customer={customer} />
          </Grid.Col>
        </Grid>
        <CustomerWebhooks customer={userId} />
        <CustomerDeliveries customer={userId} />
        {managesKeys && <CustomerKeys customer={userId} />}
      </Stack>
    </>
  );
}

const QUOTAS = ["webhooks", "eventsPerSecond", "pendingDeliveries"] as const;

function Quotas({ customer: { userId, displayName, quotas } }: { customer: Customer }) {
  const manages = useMay("Manage_Customers");
  const current = useQuery(CustomerService.method.getCustomer, { customer: userId }, { enabled: false });
  const update = useChange(CustomerService.method.updateCustomer);
  return (
    <Section
      title="Quotas"
      description="Over all its API keys, beside the quotas of each key."
      actions={
        manages && (
          <FormButton
            leftSection={<IconGauge size={16} />}
            title="Quotas of the customer"
            form={(close) => (
              <QuotasForm
                noun="customer"
                name={displayName || userId}
                names={QUOTAS}
                quotas={quotas}
                read={async () => (await current.refetch({ throwOnError: true })).data?.customer?.quotas}
                save={(changed) => update({ customer: userId, quotas: changed })}
                onClose={close}
              />
            )}
          >
            Change
          </FormButton>
        )
      }
    >
      {quotasInWords(quotas) ? `At most ${quotasInWords(quotas)}` : <Dimmed>No quotas</Dimmed>}
    </Section>
  );
}

/** A list of a customer's. */
interface OfCustomer {
  /** The user_id. */
  customer: string;
}

/** The webhooks of a customer, the first of them. */
export function CustomerWebhooks({ customer }: OfCustomer) {
  const list = useLive(WebhookService.method.searchWebhooks, { customer, pageSize: SHOWN }, REFRESH_MS);
  return (
    <Section
      title="Webhooks"
      actions={<PageLink to={listPage(PAGE_PATHS.webhooks, { customer })}>All of its webhooks</PageLink>}
    >
      <Refreshed query={list} loading={<Loading lines={5} />}>
        {({ webhooks }) =>
          webhooks.length === 0 ? (
            <Dimmed>None yet. API keys of the customer can register webhooks.</Dimmed>
          ) : (
            <WebhookTable pages={[webhooks]} endpoints={[]} period={periodOf("")} />
          )
        }
      </Refreshed>
    </Section>
  );
}

/** The newest deliveries of a customer's webhooks. */
export function CustomerDeliveries({ customer }: OfCustomer) {
  const list = useLive(DeliveryService.method.listDeliveries, { customer, pageSize: SHOWN }, REFRESH_MS);
  return (
    <Section
      title="Last deliveries"
      actions={<PageLink to={listPage(PAGE_PATHS.deliveries, { customer })}>All of its deliveries</PageLink>}
    >
      <Refreshed query={list} loading={<Loading lines={5} />}>
        {({ deliveries }) =>
          deliveries.length === 0 ? (
            <Dimmed>
              None yet. The customer’s next event appears here, if one of its webhooks receives it.
            </Dimmed>
          ) : (
            <DeliveryList deliveries={deliveries} />
          )
        }
      </Refreshed>
    </Section>
  );
}

/** The API keys of a customer, the first of them. */
export function CustomerKeys({ customer }: OfCustomer) {
  const list = useLive(ApiKeyService.method.listApiKeys, { customer, pageSize: SHOWN }, REFRESH_MS);
  const keysPage = listPage(PAGE_PATHS.keys, { customer });
  return (
    <Section title="API keys" actions={<PageLink to={keysPage}>All of its keys</PageLink>}>
      <Refreshed query={list} loading={<Loading lines={5} />}>
        {({ apiKeys }) =>
          apiKeys.length === 0 ? (
            <Button
              component={Link}
              to={keysPage}
              variant="default"
              leftSection={<IconPlus size={16} />}
              w="max-content"
            >
              Create a key for the customer
            </Button>
          ) : (
            <DataTable
              items={apiKeys}
              minWidth={290}
              columns={[
                {
                  name: "Key",
                  cell: ({ name, prefix }) => (
                    <PageLink to={listPage(PAGE_PATHS.keys, { customer, search: prefix, state: "all" })}>
                      {name}
                    </PageLink>
                  ),
                },
                {
                  name: "Permissions",
                  visibleFrom: "sm",
                  cell: ({ permissions }) => permissions.map(permissionName).join(", "),
                },
                {
                  name: "Last used",
                  cell: ({ revoked, lastUsed }) =>
                    revoked ? "Revoked" : <Time value={lastUsed} relative otherwise="Never" />,
                },
              ]}
            />
          )
        }
      </Refreshed>
    </Section>
  );
}
