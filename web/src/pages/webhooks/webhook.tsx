import { useQuery } from "@connectrpc/connect-query";
import { Button } from "@mantine/core";
import { IconWebhookOff } from "@tabler/icons-react";
import { Link, useParams } from "react-router";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { failureReason } from "../../api/failure.ts";
import { BackLink } from "../../parts/layout/back-link.tsx";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { Empty } from "../../parts/lists/empty.tsx";
import { Failure } from "../../parts/status/failure.tsx";
import { Loading } from "../../parts/status/loading.tsx";
import { Refreshed } from "../../parts/status/refreshed.tsx";
import { deliveriesOf } from "./list/success.tsx";
import { WebhookDetails } from "./webhook/webhook-details.tsx";

/** The format of `Webhook.id`, which has up to 64 bits. */
const ID = /^\d{1,18}$/;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;

/** The page of a webhook. */
export default function WebhookPage() {
  const { id = "" } = useParams();
  return (
    <>
      <BackLink to={PAGE_PATHS.webhooks}>All webhooks</BackLink>
      {/* Another webhook is another page: nothing that one was shown of may stay. */}
      {ID.test(id) ? <Known key={id} id={BigInt(id)} /> : <Missing id={id} />}
    </>
  );
}

function Known({ id }: { id: bigint }) {
  const query = useQuery(
    WebhookService.method.getWebhook,
    { webhookId: id },
    { refetchInterval: REFRESH_MS },
  );
  const { data, error, isPending, refetch } = query;
  if (isPending) {
    return (
      <>
        <PageTitle title={`Webhook ${id}`} />
        <Loading lines={10} height={28} />
      </>
    );
  }
  if (failureReason(error) === "WEBHOOK_NOT_FOUND") return <Missing id={String(id)} log={deliveriesOf(id)} />;
  if (data?.webhook) {
    return (
      <Refreshed query={query} loading={null}>
        {({ webhook, overdueRetries }) =>
          webhook && <WebhookDetails webhook={webhook} overdue={overdueRetries} />
        }
      </Refreshed>
    );
  }
  return (
    <>
      <PageTitle title={`Webhook ${id}`} />
      <Failure error={error} onRetry={() => void refetch()} />
    </>
  );
}

/** @param log where its deliveries are, if it ever was */
function Missing({ id, log }: { id: string; log?: string }) {
  return (
    <>
      <PageTitle title={`Webhook ${id}`} />
      <Empty
        icon={<IconWebhookOff />}
        title="There is no such webhook"
        action={
          log && (
            <Button component={Link} to={log} variant="default">
              Its deliveries
            </Button>
          )
        }
      >
        {log
          ? "This webhook was deleted or never existed. Its deliveries, if any, are still available."
          : "Ids of webhooks are whole numbers. Find the webhook in the list of all."}
      </Empty>
    </>
  );
}
