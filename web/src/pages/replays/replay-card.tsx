import { useMutation, useQuery } from "@connectrpc/connect-query";
import { Anchor, Badge, Button, Card, Group, Progress, Stack, Text } from "@mantine/core";
import { IconExternalLink } from "@tabler/icons-react";
import { generatePath, Link } from "react-router";
import { type Replay, ReplayService, ReplayState } from "../../../../gen/webhook/v1/replay_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay } from "../../api/session.tsx";
import { useReadAnew } from "../../api/use-read-anew.ts";
import { notifyFailure } from "../../parts/status/notify-failure.ts";
import { countOf } from "../../parts/text/count-of.ts";
import { Time } from "../../parts/text/time.tsx";
import { webhookTitle } from "../../parts/text/webhook-title.ts";
import { countsInWords, isOpen, REPLAY_STATES, replayTitle, webhookOf } from "./replay-in-words.ts";

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
