import { useInfiniteQuery } from "@connectrpc/connect-query";
import { Stack } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { ReplayService } from "../../../../gen/webhook/v1/replay_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Failure, Loading } from "../../parts/failure.tsx";
import { Empty, LoadMore } from "../../parts/lists.tsx";
import { BackLink, PageTitle } from "../../parts/page.tsx";
import { ReplayCard, refreshMs } from "./replay-card.tsx";

/** The number of items per page. */
const PAGE_SIZE = 25;

/** All replays, newest first, kept current. */
export default function ReplaysPage() {
  return (
    <>
      <BackLink to={PAGE_PATHS.deliveries}>All deliveries</BackLink>
      <PageTitle
        title="Replays"
        description="Deliveries that are sent again, and missed events that are sent later. First attempts of new events take precedence."
      />
      <Replays />
    </>
  );
}

function Replays() {
  const list = useInfiniteQuery(
    ReplayService.method.listReplays,
    { pageSize: PAGE_SIZE, pageToken: "" },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: ({ state }) => refreshMs(state.data?.pages.flatMap(({ replays }) => replays)),
    },
  );
  const failure = list.isError && (
    <Failure
      error={list.error}
      title="Could not load the replays"
      onRetry={() => void list.refetch()}
      my="sm"
    />
  );
  if (!list.data) return failure || <Loading lines={6} height={72} />;
  const replays = list.data.pages.flatMap((page) => page.replays);
  if (replays.length === 0) {
    return (
      <>
        {failure}
        <Empty title="No replays yet" icon={<IconRefresh />}>
          Start one from the list of deliveries (“Send failed ones again…”) or from the page of a webhook.
        </Empty>
      </>
    );
  }
  return (
    <>
      {failure}
      <Stack component="ul" aria-label="Replays" p={0} m={0} gap="sm">
        {replays.map((replay) => (
          <ReplayCard key={replay.id} replay={replay} />
        ))}
      </Stack>
      <LoadMore
        shown={replays.length}
        of={["replay", "replays"]}
        hasMore={list.hasNextPage}
        loading={list.isFetchingNextPage}
        onMore={() => void list.fetchNextPage()}
      />
    </>
  );
}
