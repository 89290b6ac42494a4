import { useInfiniteQuery } from "@connectrpc/connect-query";
import { IconRefresh } from "@tabler/icons-react";
import { ReplayService } from "../../../../gen/webhook/v1/replay_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Loading } from "../../parts/failure.tsx";
import { listPage, PageLink } from "../../parts/inline.tsx";
import { Empty, Pages } from "../../parts/lists.tsx";
import { BackLink, PageTitle } from "../../parts/page.tsx";
import { useCustomerFilter } from "../customers/chosen.tsx";
import { CustomerFilter } from "../customers/filter.tsx";
import { ReplayCards, refreshMs } from "./replay-card.tsx";

/** The number of items per page. */
const PAGE_SIZE = 25;

/** All replays, newest first, kept current. */
export default function ReplaysPage() {
  return (
    <>
      <BackLink to={PAGE_PATHS.deliveries}>All deliveries</BackLink>
      <PageTitle
        title="Replays"
        actions={<CustomerFilter />}
        description="Deliveries that are sent again, and missed events that are sent later. First attempts of new events take precedence."
      />
      <Replays />
    </>
  );
}

function Replays() {
  const list = useInfiniteQuery(
    ReplayService.method.listReplays,
    { pageSize: PAGE_SIZE, pageToken: "", ...useCustomerFilter() },
    {
      pageParamKey: "pageToken",
      getNextPageParam: ({ nextPageToken }) => nextPageToken || undefined,
      refetchInterval: ({ state }) => refreshMs(state.data?.pages.flatMap(({ replays }) => replays)),
    },
  );
  return (
    <Pages
      list={list}
      items={list.data?.pages.flatMap((page) => page.replays)}
      of={["replay", "replays"]}
      failed="Could not load the replays"
      loading={<Loading lines={6} height={72} />}
      empty={
        <Empty
          title="No replays yet"
          icon={<IconRefresh />}
          action={
            <PageLink to={listPage(PAGE_PATHS.deliveries, { state: "failed" })}>Failed deliveries</PageLink>
          }
        >
          Start one from the list of deliveries (“Send all of these again…”) or from the page of a webhook.
        </Empty>
      }
    >
      {(replays) => <ReplayCards replays={replays} gap="sm" aria-label="Replays" />}
    </Pages>
  );
}
