import { useQuery } from "@connectrpc/connect-query";
import { Button, Code, Group, Stack } from "@mantine/core";
import { IconSend } from "@tabler/icons-react";
import { Link, useParams } from "react-router";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { failureReason } from "../../api/failure.ts";
import { BackLink } from "../../parts/layout/back-link.tsx";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { Empty } from "../../parts/lists/empty.tsx";
import { Failure } from "../../parts/status/failure.tsx";
import { Loading } from "../../parts/status/loading.tsx";
import { CopyButton } from "../../parts/text/copy-button.tsx";
import { Attempts } from "./delivery/attempts.tsx";
import { SentRequest } from "./delivery/sent-request.tsx";
import { Summary } from "./delivery/summary.tsx";
import { isFinal } from "./list/selection.ts";
import { SendAgain } from "./send/send-one.tsx";

const REFRESH_MS = 2_000;
/** Nothing there, and nothing that could be: an id that is none. */
const NOT_THERE = new Set(["DELIVERY_NOT_FOUND", "FIELDS_INVALID"]);

/** One delivery: what it sends, what came of each attempt, and what comes next; live until its end. */
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
          <Attempts delivery={delivery} attempts={found.data?.attempts ?? []} />
          <SentRequest
            delivery={delivery}
            request={found.data?.request}
            signature={found.data?.attempts.at(-1)?.signatureHeaders ?? []}
          />
        </Stack>
      ) : found.isPending ? (
        <Loading lines={12} height={32} />
      ) : NOT_THERE.has(failureReason(found.error) ?? "") ? (
        <Empty
          icon={<IconSend />}
          title="There is no such delivery"
          action={
            <Button component={Link} to={PAGE_PATHS.deliveries} variant="default">
              All deliveries
            </Button>
          }
        >
          Its id is wrong, or it finished long ago and was deleted.
        </Empty>
      ) : (
        <Failure error={found.error} onRetry={() => void found.refetch()} />
      )}
    </>
  );
}
