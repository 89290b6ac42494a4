import { Button, Grid, Stack } from "@mantine/core";
import { IconPlayerPause, IconPlayerPlay, IconTrash, IconWebhookOff } from "@tabler/icons-react";
import { lazy, Suspense } from "react";
import { Link, useParams } from "react-router";
import { type OverdueRetries, type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { failureReason } from "../../api/failure.ts";
import { useLive } from "../../api/queries.ts";
import { useIsLimited, useMay } from "../../api/session.tsx";
import { typeName } from "../../api/type-names.ts";
import { DialogButton } from "../../parts/dialogs.tsx";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { deliveriesOf } from "../../parts/inline.tsx";
import { Empty } from "../../parts/lists.tsx";
import { BackLink, PageTitle } from "../../parts/page.tsx";
import { isHeldBack } from "../../parts/states.tsx";
import { webhookTitle } from "../../parts/text/words.ts";
import { BreakerSection } from "./breaker.tsx";
import { DeleteWebhook } from "./delete-webhook.tsx";
import { EventTypesSection } from "./event-types.tsx";
import { FilterSection } from "./filter.tsx";
import { LastDeliveries } from "./last-deliveries.tsx";
import { BreakerNotice, HoldNotice, PausedNotice, TroubleNotice, usePause, useResume } from "./notices.tsx";
import { Registration } from "./registration.tsx";
import { RequestSection } from "./request/request-section.tsx";
import { SecondSignatureSection } from "./second-signature.tsx";
import { KeyPairs, SigningSecret } from "./signing.tsx";
import { Statistics } from "./statistics.tsx";
import { TestEvent } from "./test-event.tsx";
import { VerifySnippets } from "./verify-snippets.tsx";

// The library of charts is as large as all the rest of the page.
const AttemptCharts = lazy(async () => ({ default: (await import("./attempt-charts.tsx")).AttemptCharts }));

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
  const query = useLive(WebhookService.method.getWebhook, { webhookId: id }, REFRESH_MS);
  if (failureReason(query.error) === "WEBHOOK_NOT_FOUND")
    return <Missing id={String(id)} log={deliveriesOf(id)} />;
  return (
    <>
      {!query.data?.webhook && <PageTitle title={`Webhook ${id}`} />}
      <Refreshed query={query} loading={<Loading lines={10} height={28} />}>
        {({ webhook, overdueRetries }) =>
          webhook && <WebhookDetails webhook={webhook} overdue={overdueRetries} />
        }
      </Refreshed>
    </>
  );
}

/** @param log where its deliveries are, if it ever was */
function Missing({ id, log }: { id: string; log?: string }) {
  const isLimited = useIsLimited();
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
          ? `It was deleted${isLimited ? ", belongs to an app or customer that your key does not see," : ""} or never existed. Its deliveries, if any, are still available.`
          : "Ids of webhooks are whole numbers. Find the webhook in the list of all."}
      </Empty>
    </>
  );
}

/** The sections and actions of a webhook's page. */
function WebhookDetails(props: { webhook: Webhook; overdue: OverdueRetries | undefined }) {
  const { webhook, overdue } = props;
  const mayWrite = useMay("Write_Administrative_Data");
  return (
    <>
      <PageTitle
        title={webhookTitle(webhook)}
        description={typeName(webhook)}
        actions={mayWrite && <Actions webhook={webhook} />}
      />
      <Stack gap="lg">
        {webhook.paused && <PausedNotice webhook={webhook} />}
        <BreakerNotice webhook={webhook} />
        <HoldNotice webhook={webhook} />
        <TroubleNotice
          webhook={webhook}
          overdue={webhook.paused || isHeldBack(webhook) ? undefined : overdue}
        />
        <Grid gap="lg">
          <Grid.Col span={{ base: 12, lg: 7 }}>
            <Registration webhook={webhook} />
          </Grid.Col>
          <Grid.Col span={{ base: 12, lg: 5 }}>
            <Statistics webhookId={webhook.id} />
          </Grid.Col>
        </Grid>
        <Suspense fallback={<Loading lines={6} height={28} />}>
          <AttemptCharts webhookId={webhook.id} />
        </Suspense>
        {mayWrite && <TestEvent webhook={webhook} />}
        <LastDeliveries webhook={webhook} />
        <Stack gap={0} className="joined">
          <EventTypesSection webhook={webhook} />
          <FilterSection webhook={webhook} />
          <RequestSection webhook={webhook} />
          <BreakerSection webhook={webhook} />
          {mayWrite && <SigningSecret webhook={webhook} />}
          <KeyPairs webhook={webhook} />
          <SecondSignatureSection webhook={webhook} />
        </Stack>
        <VerifySnippets webhook={webhook} />
      </Stack>
    </>
  );
}

function Actions({ webhook }: { webhook: Webhook }) {
  const resume = useResume(webhook);
  const pause = usePause(webhook);
  return (
    <>
      {webhook.paused ? (
        <Button variant="default" leftSection={<IconPlayerPlay size={16} />} {...resume}>
          Resume
        </Button>
      ) : (
        <Button variant="default" leftSection={<IconPlayerPause size={16} />} {...pause}>
          Pause
        </Button>
      )}
      <DialogButton
        variant="light"
        color="red"
        leftSection={<IconTrash size={16} />}
        dialog={(dialog) => <DeleteWebhook {...dialog} webhook={webhook} />}
      >
        Delete
      </DialogButton>
    </>
  );
}
