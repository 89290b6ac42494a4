import { useQuery } from "@connectrpc/connect-query";
import { Code, Group, Stack } from "@mantine/core";
import { IconSend } from "@tabler/icons-react";
import { useParams } from "react-router";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { BackLink } from "../../parts/layout/back-link.tsx";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { Failure } from "../../parts/status/failure.tsx";
import { ItemStatus } from "../../parts/status/item-status.tsx";
import { CopyButton } from "../../parts/text/copy-button.tsx";
import { Attempts } from "./delivery/attempts.tsx";
import { SentRequest } from "./delivery/sent-request.tsx";
import { Summary } from "./delivery/summary.tsx";
import { isFinal } from "./list/selection.ts";
import { SendAgain } from "./send/send-one.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 2_000;

/**
 * The page of a delivery: its request, the outcome of each attempt, and the next one. Updates live until the delivery
 * ends.
 */
export default function DeliveryPage() {
  const { id = "" } = useParams();
  const found = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId: id },
    {
      refetchInterval: ({ state: { data } }) =>
        data?.delivery && !isFinal(data.delivery) ? REFRESH_MS : false,
    },
  );
  const delivery = found.data?.delivery;
  return (
    <>
      <BackLink to={PAGE_PATHS.deliveries}>All deliveries</BackLink>
      <PageTitle
        title="Delivery"
        // The end of the id, as in the list: several deliveries may be open in tabs.
        tab={`Delivery ${id.slice(-8)}`}
        description={
          <Group gap={4} wrap="nowrap">
            <Code>{id}</Code>
            <CopyButton value={id} of="the delivery’s id" />
          </Group>
        }
        actions={delivery && <SendAgain delivery={delivery} />}
      />
      {delivery ? (
        <Stack gap="lg">
          {found.isError && <Failure error={found.error} onRetry={() => void found.refetch()} />}
          <Summary delivery={delivery} event={found.data?.event} run={found.data?.run} />
          <Attempts delivery={delivery} event={found.data?.event} attempts={found.data?.attempts ?? []} />
          <SentRequest
            delivery={delivery}
            request={found.data?.request}
            signature={found.data?.attempts.at(-1)?.signatureHeaders ?? []}
          />
        </Stack>
      ) : (
        <ItemStatus
          query={found}
          notFound="DELIVERY_NOT_FOUND"
          noun="delivery"
          icon={<IconSend />}
          list={{ path: PAGE_PATHS.deliveries, label: "All deliveries" }}
        >
          The id is wrong, or the delivery is older than the retention and was deleted.
        </ItemStatus>
      )}
    </>
  );
}
