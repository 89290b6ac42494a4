import { Button, Grid, Stack } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPlayerPause, IconPlayerPlay, IconTrash } from "@tabler/icons-react";
import type { OverdueRetries, Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { useMay } from "../../../api/session.tsx";
import { PageTitle } from "../../../parts/layout/page-title.tsx";
import { isHeldBack } from "../../../parts/status/webhook-health.tsx";
import { webhookTitle } from "../../../parts/text/webhook-title.ts";
import { DeleteWebhook } from "../actions/delete-webhook.tsx";
import { KeyPairs } from "../actions/key-pairs.tsx";
import { PausedNotice, usePause, useResume } from "../actions/pausing.tsx";
import { SigningSecret } from "../actions/signing-secret.tsx";
import { BreakerNotice } from "../breaker/breaker-notice.tsx";
import { BreakerSection } from "../breaker/breaker-section.tsx";
import { EventTypesSection } from "../endpoint/event-types-section.tsx";
import { FilterSection } from "../filter/filter-section.tsx";
import { RequestSection } from "../request/request-section.tsx";
import { AttemptCharts } from "./attempt-charts.tsx";
import { LastDeliveries } from "./last-deliveries.tsx";
import { Registration } from "./registration.tsx";
import { Statistics } from "./statistics.tsx";
import { TestEvent } from "./test-event.tsx";
import { TroubleNotice } from "./trouble-notice.tsx";
import { VerifySnippets } from "./verify-snippets.tsx";

/** The sections and actions of a webhook's page. */
export function WebhookDetails({
  webhook,
  overdue,
}: {
  webhook: Webhook;
  overdue: OverdueRetries | undefined;
}) {
  const mayWrite = useMay("Write_Administrative_Data");
  return (
    <>
      <PageTitle
        title={webhookTitle(webhook)}
        description={processName(webhook.webhookProcess)}
        actions={mayWrite && <Actions webhook={webhook} />}
      />
      <Stack gap="lg">
        {webhook.paused && <PausedNotice webhook={webhook} />}
        <BreakerNotice webhook={webhook} />
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
        <AttemptCharts webhookId={webhook.id} />
        {mayWrite && <TestEvent webhook={webhook} />}
        <LastDeliveries webhook={webhook} />
        <Stack gap={0} className="joined">
          <EventTypesSection webhook={webhook} />
          <FilterSection webhook={webhook} />
          <RequestSection webhook={webhook} />
          <BreakerSection webhook={webhook} />
          {mayWrite && <SigningSecret webhook={webhook} />}
          <KeyPairs webhook={webhook} />
        </Stack>
        <VerifySnippets webhook={webhook} />
      </Stack>
    </>
  );
}

function Actions({ webhook }: { webhook: Webhook }) {
  const resume = useResume(webhook);
  const pause = usePause(webhook);
  const [deleting, remove] = useDisclosure();
  return (
    <>
      {webhook.paused ? (
        <Button
          variant="default"
          leftSection={<IconPlayerPlay size={16} />}
          loading={resume.isPending}
          onClick={resume.run}
        >
          Resume
        </Button>
      ) : (
        <Button
          variant="default"
          leftSection={<IconPlayerPause size={16} />}
          loading={pause.isPending}
          onClick={pause.run}
        >
          Pause
        </Button>
      )}
      <Button variant="light" color="red" leftSection={<IconTrash size={16} />} onClick={remove.open}>
        Delete
      </Button>
      <DeleteWebhook webhook={webhook} opened={deleting} onClose={remove.close} />
    </>
  );
}
