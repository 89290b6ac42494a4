import { timestampMs } from "@bufbuild/protobuf/wkt";
import { useQuery } from "@connectrpc/connect-query";
import { Anchor, Group, Stack, Text } from "@mantine/core";
import { useInterval } from "@mantine/hooks";
import { useState } from "react";
import { Link } from "react-router";
import { type Replay, ReplayService } from "../../../../gen/webhook/v1/replay_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { ReplayCard } from "./replay-card.tsx";
import { isOpen, refreshMs } from "./replay-in-words.ts";

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
