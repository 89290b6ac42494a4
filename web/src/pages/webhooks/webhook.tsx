import { ActionIcon, Box, Button, Group, Menu, Stack, Tabs } from "@mantine/core";
import { IconDots, IconPlayerPause, IconPlayerPlay, IconSend, IconWebhookOff } from "@tabler/icons-react";
import { lazy, Suspense, useState } from "react";
import { Link, useParams } from "react-router";
import { type OverdueRetries, type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { failureReason } from "../../api/failure.ts";
import { useLive } from "../../api/queries.ts";
import { useIsLimited, useMay } from "../../api/session.tsx";
import { typeName } from "../../api/type-names.ts";
import { FormDialog } from "../../parts/dialogs.tsx";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { deliveriesOf } from "../../parts/inline.tsx";
import { Empty } from "../../parts/lists.tsx";
import { BackLink, PageTitle } from "../../parts/page.tsx";
import { isHeldBack, WebhookHealthBadges } from "../../parts/states.tsx";
import { capitalized, webhookTitle } from "../../parts/text/words.ts";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { CustomerLink } from "../customers/chosen.tsx";
import { OpenReplays } from "../replays/replay-card.tsx";
import { BreakerSection } from "./breaker.tsx";
import { DeleteWebhook } from "./delete-webhook.tsx";
import { EventTypesSection } from "./event-types.tsx";
import { FilterSection } from "./filter.tsx";
import { Fix, type FixProps } from "./fix.tsx";
import { LastDeliveries, ReplayFailed } from "./last-deliveries.tsx";
import { type LiveTest, useLiveTest } from "./live-test.tsx";
import { BreakerNotice, HoldNotice, PausedNotice, usePause, useResume } from "./notices.tsx";
import { EditForm, Registration } from "./registration.tsx";
import { RequestSection } from "./request/request-section.tsx";
import { RotateSecret } from "./signing.tsx";
import { TestEvent } from "./test-event.tsx";
import { Verify } from "./verify.tsx";

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

const PARAMETERS = ["tab"] as const;
/** The tabs, as addresses spell them. */
const TABS = ["activity", "settings", "verify"];

/** The name, the state and the actions of a webhook, which stay in sight, and its tabs. */
function WebhookDetails(props: { webhook: Webhook; overdue: OverdueRetries | undefined }) {
  const { webhook, overdue } = props;
  const [{ tab }, change] = useUrlFilters(PARAMETERS);
  const shown = TABS.find((each) => each === tab) ?? "activity";
  // The tab that is shown already is scrolled to its top, where the outcome of a test is.
  const onTab = (next: string | null) =>
    change({ tab: next === "activity" ? "" : (next ?? "") }, { toTop: true, replace: next === shown });
  const test = useLiveTest(webhook);
  const mayWrite = useMay("Write_Administrative_Data");
  return (
    <Tabs value={shown} onChange={onTab} keepMounted={false}>
      <Box
        pos={{ base: "static", sm: "sticky" }}
        top="var(--header-height)"
        pt="xs"
        mb="lg"
        bg="var(--page-ground, var(--mantine-color-body))"
        style={{ zIndex: 2 }}
      >
        <PageTitle
          title={webhookTitle(webhook)}
          compact
          description={
            <Group gap="sm" component="span" style={{ rowGap: 0 }}>
              <WebhookHealthBadges webhook={webhook} />
              {typeName(webhook)}
              {webhook.customer !== undefined && <CustomerLink id={webhook.customer} />}
            </Group>
          }
          actions={mayWrite && <Actions webhook={webhook} test={test} onTab={onTab} />}
        />
        <Tabs.List>
          {TABS.map((each) => (
            <Tabs.Tab key={each} value={each}>
              {capitalized(each)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
      </Box>
      <Tabs.Panel value="activity">
        <Activity webhook={webhook} overdue={overdue} test={test} />
      </Tabs.Panel>
      <Tabs.Panel value="settings">
        <Stack gap={0} className="joined">
          <Registration webhook={webhook} />
          <EventTypesSection webhook={webhook} />
          <FilterSection webhook={webhook} />
          <RequestSection webhook={webhook} />
          <BreakerSection webhook={webhook} />
        </Stack>
      </Tabs.Panel>
      <Tabs.Panel value="verify">
        <Verify webhook={webhook} />
      </Tabs.Panel>
    </Tabs>
  );
}

interface ActionsProps {
  webhook: Webhook;
  test: LiveTest;
  onTab: (tab: string) => void;
}

function Actions({ webhook, test, onTab }: ActionsProps) {
  const resume = useResume(webhook);
  const pause = usePause(webhook);
  const [asked, setAsked] = useState<"edit" | "rotate" | "delete">();
  useFocusBack(asked !== undefined);
  const dialog = (of: typeof asked) => ({ opened: asked === of, onClose: () => setAsked(undefined) });
  function tryNow() {
    onTab("activity");
    void test.run();
  }
  return (
    <>
      <Button variant="default" leftSection={<IconSend size={16} />} loading={test.busy} onClick={tryNow}>
        Test
      </Button>
      <ReplayFailed webhookId={webhook.id} />
      <Button
        variant="default"
        leftSection={webhook.paused ? <IconPlayerPlay size={16} /> : <IconPlayerPause size={16} />}
        {...(webhook.paused ? resume : pause)}
      >
        {webhook.paused ? "Resume" : "Pause"}
      </Button>
      <Menu position="bottom-end" returnFocus>
        <Menu.Target>
          <ActionIcon variant="default" size="1.875rem" aria-label="More actions">
            <IconDots size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => setAsked("edit")}>Edit…</Menu.Item>
          <Menu.Item onClick={() => setAsked("rotate")}>Rotate secret…</Menu.Item>
          <Menu.Item color="red" onClick={() => setAsked("delete")}>
            Delete…
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <FormDialog {...dialog("edit")} title="Edit webhook">
        <EditForm webhook={webhook} onClose={() => setAsked(undefined)} />
      </FormDialog>
      <RotateSecret {...dialog("rotate")} webhook={webhook} onRotated={() => onTab("verify")} />
      <DeleteWebhook {...dialog("delete")} webhook={webhook} />
    </>
  );
}

function Activity({ webhook, overdue, test }: FixProps) {
  const mayWrite = useMay("Write_Administrative_Data");
  const isHeld = webhook.paused || isHeldBack(webhook);
  return (
    <Stack gap="lg">
      {webhook.paused && <PausedNotice webhook={webhook} />}
      <BreakerNotice webhook={webhook} />
      <HoldNotice webhook={webhook} />
      <Fix webhook={webhook} test={test} overdue={isHeld ? undefined : overdue} />
      <OpenReplays webhookId={webhook.id} />
      <Suspense fallback={<Loading lines={6} height={28} />}>
        <AttemptCharts webhookId={webhook.id} />
      </Suspense>
      <LastDeliveries webhook={webhook} />
      {mayWrite && <TestEvent webhook={webhook} />}
    </Stack>
  );
}
