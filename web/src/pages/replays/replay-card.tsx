import { timestampMs } from "@bufbuild/protobuf/wkt";
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { Anchor, Badge, Button, Card, Group, Progress, Stack, Text } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { IconExternalLink } from "@tabler/icons-react";
import { useState } from "react";
import { generatePath, Link } from "react-router";
import { type Replay, ReplayService, ReplayState } from "../../../../gen/webhook/v1/replay_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { notifyFailure } from "../../parts/failure.tsx";
import { DELIVERY_STATES } from "../../parts/states.tsx";
import { countOf, webhookTitle } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";

/** The label and colour of each state. */
export const REPLAY_STATES: Record<ReplayState, { label: string; color: string }> = {
  [ReplayState.UNSPECIFIED]: { label: "Unknown", color: "gray" },
  [ReplayState.RUNNING]: { label: "Running", color: "blue" },
  [ReplayState.PAUSED]: { label: "Paused", color: "orange" },
  [ReplayState.COMPLETED]: { label: "Completed", color: "green" },
  [ReplayState.CANCELLED]: { label: "Cancelled", color: "gray" },
};

/** Whether the replay is open. */
export function isOpen({ state }: Pick<Replay, "state">): boolean {
  return state === ReplayState.RUNNING || state === ReplayState.PAUSED;
}

/** The title of a replay: `Failed deliveries`, `Missed events`. */
export function replayTitle({ what }: Replay): string {
  if (what.case === "backfill") return "Missed events";
  if (what.case !== "resend") return "Replay";
  const { states, process } = what.value;
  const labels = DELIVERY_STATES.filter(({ state }) => states.includes(state)).map(({ label }) => label);
  const of = process === undefined ? "" : ` of ${processName(process)}`;
  return `${labels.join(", ")} deliveries${of}`;
}

/** The webhook that a replay is restricted to; undefined for several. */
export function webhookOf({ what }: Replay): bigint | undefined {
  return what.case === undefined ? undefined : what.value.webhookId;
}

/** `1,250 deliveries queued, 3 skipped`. */
export function countsInWords({ queued, skipped }: Replay): string {
  const counted = countOf(Number(queued), "delivery queued", "deliveries queued");
  return skipped === 0n ? counted : `${counted}, ${skipped.toLocaleString()} skipped`;
}

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = { open: 1_000, ended: 15_000 };

/** The interval at which replays are read again, in milliseconds: short while one is open. */
export function refreshMs(replays: readonly Pick<Replay, "state">[] = []): number {
  return replays.some(isOpen) ? REFRESH_MS.open : REFRESH_MS.ended;
}

/** A replay: what it queues, how far it is, and what can be done with it. */
export function ReplayCard({ replay }: { replay: Replay }) {
  const title = replayTitle(replay);
  const { label, color } = REPLAY_STATES[replay.state] ?? REPLAY_STATES[ReplayState.UNSPECIFIED];
  const percent = Math.floor(replay.progress * 100);
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
            <Text size="xs" c="dimmed" component="div" style={{ overflowWrap: "anywhere" }}>
              <Which replay={replay} />
            </Text>
          </Stack>
          <Actions replay={replay} />
        </Group>
        {isOpen(replay) && (
          <Progress
            value={percent}
            color={color}
            animated={replay.state === ReplayState.RUNNING}
            aria-label={`${title}: ${percent} % examined`}
          />
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
          <Anchor
            component={Link}
            to={generatePath(PAGE_PATHS.event, { id: what.value.eventId })}
            inherit
            underline="always"
          >
            {what.value.eventId}
          </Anchor>
        </>
      )}
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
          {", ended "}
          <Time value={ended} relative />
        </>
      )}
      {replay.url !== undefined && (
        <>
          {" · "}
          <Anchor href={replay.url} target="_blank" rel="noreferrer" inherit underline="always">
            In Temporal <IconExternalLink size={12} aria-label="in a new tab" />
          </Anchor>
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
    <Anchor
      component={Link}
      to={generatePath(PAGE_PATHS.webhook, { id: String(id) })}
      inherit
      underline="always"
      title={data?.webhook?.url}
    >
      Webhook #{String(id)}
      {data?.webhook && ` · ${webhookTitle(data.webhook)}`}
    </Anchor>
  );
}

function Actions({ replay }: { replay: Replay }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const readAnew = useReadAnew();
  const pause = useMutation(ReplayService.method.pauseReplay);
  const resume = useMutation(ReplayService.method.resumeReplay);
  const cancel = useMutation(ReplayService.method.cancelReplay);
  if (!mayWrite || !isOpen(replay)) return null;

  async function change({ mutateAsync }: typeof pause | typeof resume | typeof cancel) {
    try {
      await mutateAsync({ replayId: replay.id });
    } catch (error) {
      notifyFailure("The replay was not changed", error);
    }
    await readAnew(ReplayService);
  }
  const isPaused = replay.state === ReplayState.PAUSED;
  const [what, act] = isPaused ? (["Resume", resume] as const) : (["Pause", pause] as const);
  return (
    <Group gap="xs">
      <Button variant="default" size="xs" loading={act.isPending} onClick={() => void change(act)}>
        {what}
      </Button>
      <Button
        variant="subtle"
        color="red"
        size="xs"
        loading={cancel.isPending}
        onClick={() => void change(cancel)}
      >
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

/** Replays that are open or have just ended, kept current. Nothing if there are none. */
export function OpenReplays({ webhookId }: { webhookId?: bigint }) {
  const { data } = useQuery(
    ReplayService.method.listReplays,
    { pageSize: SHOWN, ...(webhookId === undefined ? {} : { webhookId }) },
    {
      refetchInterval: ({ state }) => refreshMs(state.data?.replays),
    },
  );
  const [now, setNow] = useState(Date.now);
  useInterval(() => setNow(Date.now()), CHECK_MS, { autoInvoke: true });
  const shown = (data?.replays ?? []).filter((replay) => isCurrent(replay, now));
  if (shown.length === 0) return null;
  return (
    <Stack gap="xs" mb="md" role="group" aria-label="Replays">
      <Group justify="space-between">
        <Text fw={600} size="sm">
          Replays
        </Text>
        <Anchor component={Link} to={PAGE_PATHS.replays} size="sm">
          All replays
        </Anchor>
      </Group>
      <Stack component="ul" p={0} m={0} gap="xs">
        {shown.map((replay) => (
          <ReplayCard key={replay.id} replay={replay} />
        ))}
      </Stack>
    </Stack>
  );
}

function isCurrent(replay: Replay, now: number): boolean {
  return isOpen(replay) || (!!replay.ended && now - timestampMs(replay.ended) < ENDED_SHOWN_MS);
}
