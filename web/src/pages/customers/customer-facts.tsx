import { Alert, Group } from "@mantine/core";
import { IconPlayerPause, IconTrash } from "@tabler/icons-react";
import type { Customer, CustomerErasure } from "../../../../gen/webhook/v1/customer_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay, useOwnCustomer } from "../../api/session.tsx";
import { listPage, PageLink } from "../../parts/inline.tsx";
import { Facts, Section } from "../../parts/page.tsx";
import { CustomerBadges } from "../../parts/states.tsx";
import { CopyButton } from "../../parts/text/copy.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";

/** The most open deliveries, and keys, that the service counts. */
const MAX_COUNTED = 1_000;

/** `120`; `1,000+` if there may be more. */
export function countedInWords(count = 0): string {
  return `${count.toLocaleString()}${count === MAX_COUNTED ? "+" : ""}`;
}

/** The name, state and counts of a customer, with links to what is counted. */
export function CustomerFacts({ customer }: { customer: Customer }) {
  const { userId, displayName, created, counts, metadata } = customer;
  const managesKeys = useMay("Manage_Api_Keys");
  const isOwn = useOwnCustomer() !== undefined;
  const link = (path: string, text: string, filters: Record<string, string> = {}) => (
    <PageLink to={listPage(path, { customer: userId, ...filters })}>{text}</PageLink>
  );
  const { webhooks = 0, apiKeys, pendingDeliveries, retryingDeliveries } = counts ?? {};
  const keys = `${countedInWords(apiKeys)} ${apiKeys === 1 ? "key" : "keys"}`;
  return (
    <Section title="Summary" actions={managesKeys && link(PAGE_PATHS.audit, "Audit log")}>
      <Facts
        facts={[
          (webhooks > 0 || customer.paused || customer.erasure) && [
            "State",
            <CustomerBadges key="state" customer={customer} />,
          ],
          [
            "User id",
            <Group key="id" gap={4} wrap="nowrap">
              <span>{userId}</span>
              <CopyButton value={userId} of="the user id" />
            </Group>,
          ],
          displayName !== "" && ["Name", displayName],
          ["Webhooks", link(PAGE_PATHS.webhooks, countOf(webhooks, "webhook", "webhooks"))],
          [
            "Deliveries",
            <Group key="deliveries" gap="md">
              {link(PAGE_PATHS.deliveries, `${countedInWords(pendingDeliveries)} pending`, {
                state: "pending",
              })}
              {link(PAGE_PATHS.deliveries, `${countedInWords(retryingDeliveries)} retrying`, {
                state: "retrying",
              })}
            </Group>,
          ],
          ["API keys", managesKeys ? link(PAGE_PATHS.keys, keys) : keys],
          ["Created", <Time key="created" value={created} otherwise="Only events name it" />],
          ...(isOwn ? [] : Object.entries(metadata).map(([name, value]) => [name, value] as const)),
        ]}
      />
    </Section>
  );
}

/** Says that a customer is paused, being erased, or was erased; nothing otherwise. */
export function CustomerNotices({ customer: { paused, erasure } }: { customer: Customer }) {
  return (
    <>
      {paused && (
        <Alert
          color="gray"
          icon={<IconPlayerPause />}
          title={
            <>
              Paused since <Time value={paused} />
            </>
          }
          role="status"
        >
          Deliveries of all its webhooks wait. They are sent once the customer is resumed.
        </Alert>
      )}
      {erasure?.started && (
        <Alert
          color={erasure.finished ? "gray" : "red"}
          icon={<IconTrash />}
          title={
            erasure.finished ? (
              <>
                Erased <Time value={erasure.finished} />
              </>
            ) : (
              <>
                Erasing since <Time value={erasure.started} />
              </>
            )
          }
          role="note"
        >
          {removedInWords(erasure)}
        </Alert>
      )}
    </>
  );
}

/** `2 webhooks deleted, 1 key revoked, 3 deliveries cancelled, 1,200 payloads erased.` */
function removedInWords({ webhooks, apiKeys, deliveries, payloads }: CustomerErasure): string {
  const removed = [
    `${countOf(Number(webhooks), "webhook", "webhooks")} deleted`,
    `${countOf(Number(apiKeys), "API key", "API keys")} revoked`,
    `${countOf(Number(deliveries), "delivery", "deliveries")} cancelled`,
    `${countOf(Number(payloads), "payload", "payloads")} erased`,
  ];
  return `${removed.join(", ")}.`;
}
