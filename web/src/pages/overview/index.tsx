import { Alert, Button, Grid, Stack } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPlugConnectedX } from "@tabler/icons-react";
import type { Overview } from "../../../../gen/webhook/v1/stats_pb.ts";
import { failureInWords } from "../../api/failure.ts";
import { useOwnApp } from "../../api/session.tsx";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { Section } from "../../parts/layout/section.tsx";
import { Bottlenecks } from "./bottlenecks.tsx";
import { Counts } from "./counts.tsx";
import { DispatchNow } from "./dispatch-now.tsx";
import { FirstSteps } from "./first-steps.tsx";
import { History } from "./history.tsx";
import { Runs } from "./runs.tsx";
import { TroubledWebhooks } from "./troubled-webhooks.tsx";
import { useLiveOverview } from "./use-live-overview.ts";
import { WebhookFigures } from "./webhook-figures.tsx";

/** The overview: live figures, and those of the last day. */
export default function OverviewPage() {
  const { overview, failure } = useLiveOverview();
  const isOfApp = useOwnApp() !== undefined;
  // Plumbing: of use when something is wrong with the service itself.
  const [runsShown, runs] = useDisclosure();
  return (
    <>
      <PageTitle
        title="Overview"
        description={
          isOfApp ? "Live delivery status of your app’s webhooks" : "Live delivery status across all webhooks"
        }
        actions={<DispatchNow />}
      />
      <Stack gap="lg">
        {failure !== undefined && <NotLive failure={failure} />}
        {overview && isIdle(overview) && <FirstSteps />}
        {overview && <Bottlenecks overview={overview} />}
        {overview && <TroubledWebhooks overview={overview} />}
        <Counts overview={overview} />
        <Section title="Attempts in the last 24 hours">
          <History />
        </Section>
        <Grid gap="lg">
          <Grid.Col span={{ base: 12, lg: 6 }}>
            <Section title="Most failed attempts">
              <WebhookFigures by="failures" />
            </Section>
          </Grid.Col>
          <Grid.Col span={{ base: 12, lg: 6 }}>
            <Section title="Slowest webhooks">
              <WebhookFigures by="slowness" />
            </Section>
          </Grid.Col>
        </Grid>
        {!isOfApp && (
          <Section
            title="Last dispatch runs"
            actions={
              <Button variant="subtle" size="compact-sm" onClick={runs.toggle} aria-expanded={runsShown}>
                {runsShown ? "Hide" : "Show"}
              </Button>
            }
          >
            {runsShown && <Runs />}
          </Section>
        )}
      </Stack>
    </>
  );
}

/** Whether nothing is open or failed, and nothing was delivered in the last 24 hours. */
function isIdle({ pending, delivering, retrying, failed, deliveredLastDay }: Overview): boolean {
  return pending + delivering + retrying + failed + deliveredLastDay === 0n;
}

function NotLive({ failure }: { failure: unknown }) {
  const { title, text } = failureInWords(failure);
  return (
    <Alert
      color="yellow"
      icon={<IconPlugConnectedX />}
      title="The figures are not live at the moment"
      role="status"
    >
      {title}. {text} The page tries again by itself.
    </Alert>
  );
}
