import { timestampMs } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { useQuery, useTransport } from "@connectrpc/connect-query";
import { Badge, Button, Card, Group, Progress, Stack, type StackProps, Text } from "@mantine/core";
import { type Replay, ReplayService, ReplayState } from "../../../../gen/webhook/v1/replay_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { processName } from "../../api/type-names.ts";
import { Dimmed, eventPage, PageLink, TemporalLink, webhookPage } from "../../parts/inline.tsx";
import { useAct } from "../../parts/save.ts";
import { DELIVERY_STATES } from "../../parts/states.tsx";
import { countOf, webhookTitle } from "../../parts/text/words.ts";
import { Time, useNow } from "../../parts/time.tsx";
import { useCustomerFilter } from "../customers/chosen.tsx";

/** The label and colour of each state. */
const REPLAY_STATES: Record<ReplayState, { label: string; color: string }> = {
  [ReplayState.UNSPECIFIED]: { label: "Unknown", color: "gray" },
  [ReplayState.RUNNING]: { label: "Running", color: "blue" },
  [ReplayState.PAUSED]: { label: "Paused", color: "orange" },
  [ReplayState.COMPLETED]: { label: "Completed", color: "green" },
  [ReplayState.CANCELLED]: { label: "Cancelled", color: "gray" },
};

/** In place of the state of a completed replay of which some deliveries have not ended. */
const SENDING = { label: "Sending", color: "blue" };

/** Whether the replay is open. */
export function isOpen({ state }: Pick<Replay, "state">): boolean {
  return state === ReplayState.RUNNING || state === ReplayState.PAUSED;
}

/** The title of a replay: `Failed deliveries`, `Missed events`. */
function replayTitle({ what, webhookProcessName }: Replay): string {
  if (what.case === "backfill") return "Missed events";
  if (what.case !== "resend") return "Replay";
  const { states, process } = what.value;
  const labels = DELIVERY_STATES.filter(({ state }) => states.includes(state)).map(({ label }) => label);
  const of = process === undefined ? "" : ` of ${processName(process, webhookProcessName)}`;
  return `${labels.join(", ")} deliveries${of}`;
}

/** The webhook that a replay is restricted to; undefined for several. */
function webhookOf({ what }: Replay): bigint | undefined {
  return what.case === undefined ? undefined : what.value.webhookId;
}

/** `1,998 of 2,007 delivered, 3 failed again, 6 wait`. */
function countsInWords({ queued, delivered, failed, waiting, skipped }: Replay): string {
  const counts = [
    `${delivered.toLocaleString()} of ${queued.toLocaleString()} delivered`,
    failed > 0n && `${failed.toLocaleString()} failed again`,
    waiting > 0n && `${waiting.toLocaleString()} ${waiting === 1n ? "waits" : "wait"}`,
    skipped > 0n && `${skipped.toLocaleString()} skipped`,
  ];
  return counts.filter(Boolean).join(", ");
}

/** Whether a replay is open, or some of its deliveries are. */
function isUnderWay(replay: Pick<Replay, "state" | "waiting">): boolean {
  return isOpen(replay) || replay.waiting > 0n;
}

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = { open: 1_000, ended: 15_000 };

/** The interval at which replays are read again, in milliseconds: short while one is open. */
export function refreshMs(replays: readonly Pick<Replay, "state" | "waiting">[] = []): number {
  return replays.some(isUnderWay) ? REFRESH_MS.open : REFRESH_MS.ended;
}

/** Replays as cards. */
export function ReplayCards({ replays, ...list }: StackProps & { replays: readonly Replay[] }) {
  return (
    <Stack component="ul" p={0} m={0} {...list}>
      {replays.map((replay) => (
        <ReplayCard key={replay.id} replay={replay} />
      ))}
    </Stack>
  );
}

/** A replay: what it queues, how far it is, and what can be done with it. */
function ReplayCard({ replay }: { replay: Replay }) {
  const title = replayTitle(replay);
  const isSending = replay.state === ReplayState.COMPLETED && isUnderWay(replay);
  const { label, color } = isSending
    ? SENDING
    : (REPLAY_STATES[replay.state] ?? REPLAY_STATES[ReplayState.UNSPECIFIED]);
  const percent = Math.floor(replay.progress * 100);
  // While a replay is open, its total is that of what it has examined.
  const part = (count: bigint) =>
    (Number(count) / Math.max(1, Number(replay.queued))) * (isOpen(replay) ? percent : 100);
  return (
    <Card component="li" withBorder padding="md" aria-label={title}>
      <Stack gap="xs">
        <Group justify="space-between" align="flex-start" gap="xs">
          <Stack gap={0} miw={0}>
            <Group gap="xs">
              <Text fw={600} size="sm">
                {title}
              </Text>
              <Badge variant="light" color={color} tt="none">
                {label}
              </Badge>
            </Group>
            <Dimmed size="xs" component="div" style={{ overflowWrap: "anywhere" }}>
              <Which replay={replay} />
            </Dimmed>
          </Stack>
          <Actions replay={replay} />
        </Group>
        {(isUnderWay(replay) || replay.queued > 0n) && (
          <Progress.Root role="img" aria-label={`${title}: ${countsInWords(replay)}`}>
            <Progress.Section withAria={false} value={part(replay.delivered)} color="var(--rate-delivered)" />
            <Progress.Section withAria={false} value={part(replay.failed)} color="var(--chart-failed)" />
          </Progress.Root>
        )}
        <Text size="sm" component="div">
          {countsInWords(replay)}
          {isOpen(replay) && ` · ${percent} % examined`}
          {isOpen(replay) && replay.webhooksWaiting > 0 && (
            <Text span inherit fw={600}>
              {" "}
              · {waitingInWords(replay)}
            </Text>
          )}
        </Text>
      </Stack>
    </Card>
  );
}

function waitingInWords({ webhooks, webhooksWaiting: waiting }: Replay): string {
  if (webhooks === 1) return "the webhook is paused: the rest waits until it is resumed";
  const subject = countOf(waiting, "webhook is", "webhooks are");
  return `${subject} paused: their deliveries wait`;
}

/** The webhook, the event, the range and the search of a replay, and when it was started. */
function Which({ replay }: { replay: Replay }) {
  const { what, created, ended } = replay;
  const webhookId = webhookOf(replay);
  return (
    <>
      {webhookId === undefined ? "All webhooks" : <WebhookLink id={webhookId} />}
      {what.case === "resend" && what.value.eventId !== undefined && (
        <>
          , event{" "}
          <PageLink to={eventPage(what.value.eventId)} inherit underline="always">
            {what.value.eventId}
          </PageLink>
        </>
      )}
      {what.case === "resend" && what.value.customer !== undefined && ` of ${what.value.customer}`}
      {what.case === "resend" && what.value.search !== "" && `, search “${what.value.search}”`}
      {what.value?.from && (
        <>
          , from <Time value={what.value.from} />
        </>
      )}
      {what.value?.to && (
        <>
          , to <Time value={what.value.to} />
        </>
      )}
      {" · started "}
      <Time value={created} relative />
      {ended && (
        <>
          , ended <Time value={ended} relative />
        </>
      )}
      {replay.url !== undefined && (
        <>
          {" · "}
          <TemporalLink href={replay.url} inherit underline="always" iconSize={12}>
            In Temporal
          </TemporalLink>
        </>
      )}
    </>
  );
}

/** The age up to which webhooks are not read again, in milliseconds. */
const WEBHOOK_FRESH_MS = 60_000;

/** A webhook by its number and its name or address; by its number alone once it is deleted. */
function WebhookLink({ id }: { id: bigint }) {
  const { data } = useQuery(
    WebhookService.method.getWebhook,
    { webhookId: id },
    { staleTime: WEBHOOK_FRESH_MS },
  );
  return (
    <PageLink to={webhookPage(id)} inherit underline="always" title={data?.webhook?.url}>
      Webhook #{String(id)}
      {data?.webhook && ` · ${webhookTitle(data.webhook)}`}
    </PageLink>
  );
}

function Actions({ replay }: { replay: Replay }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const transport = useTransport();
  const readAnew = useReadAnew();
  const service = createClient(ReplayService, transport);
  const change = (name: "pauseReplay" | "resumeReplay" | "cancelReplay") =>
    service[name]({ replayId: replay.id }).finally(() => readAnew(ReplayService));
  const pause = useAct("The replay was not paused", () => change("pauseReplay"));
  const resume = useAct("The replay was not resumed", () => change("resumeReplay"));
  const cancel = useAct("The replay was not cancelled", () => change("cancelReplay"));
  if (!mayWrite || !isOpen(replay)) return null;
  const isPaused = replay.state === ReplayState.PAUSED;
  return (
    <Group gap="xs">
      <Button variant="default" {...(isPaused ? resume : pause)}>
        {isPaused ? "Resume" : "Pause"}
      </Button>
      <Button variant="subtle" color="red" {...cancel}>
        Cancel replay
      </Button>
    </Group>
  );
}

/** The number of newest replays of which the current ones are shown; the page of replays has all. */
const SHOWN = 10;
/** The time for which an ended replay is still shown, in milliseconds. */
const ENDED_SHOWN_MS = 120_000;
/** The interval between checks whether a replay ended too long ago, in milliseconds. */
const CHECK_MS = 10_000;

/** Replays that are open or have just ended, kept current. */
export function useCurrentReplays(webhookId?: bigint): Replay[] {
  const { data } = useQuery(
    ReplayService.method.listReplays,
    { pageSize: SHOWN, ...useCustomerFilter(), ...(webhookId === undefined ? {} : { webhookId }) },
    { refetchInterval: ({ state }) => refreshMs(state.data?.replays) },
  );
  const now = useNow(CHECK_MS);
  return (data?.replays ?? []).filter((replay) => isCurrent(replay, now));
}

/** Replays that are open or have just ended. Nothing if there are none. */
export function OpenReplays({ webhookId }: { webhookId?: bigint }) {
  const shown = useCurrentReplays(webhookId);
  if (shown.length === 0) return null;
  return (
    <Stack gap="xs" mb="md" role="group" aria-label="Replays">
      <Group justify="space-between">
        <Text fw={600} size="sm">
          Replays
        </Text>
        <PageLink to={PAGE_PATHS.replays}>All replays</PageLink>
      </Group>
      <ReplayCards replays={shown} gap="xs" />
    </Stack>
  );
}

function isCurrent(replay: Replay, now: number): boolean {
  return isUnderWay(replay) || (!!replay.ended && now - timestampMs(replay.ended) < ENDED_SHOWN_MS);
}
