import { timestampMs } from "@bufbuild/protobuf/wkt";
import { Badge } from "@mantine/core";
import { type DispatchRun, StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { useLive } from "../../api/queries.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, TemporalLink } from "../../parts/inline.tsx";
import { DataTable } from "../../parts/listing.tsx";
import { durationInWords } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";

/** The number of items shown. */
const SHOWN = 10;
/** The interval between refreshes, in milliseconds. */
const RUNS_REFRESH_MS = 3_000;

/** The last dispatch runs: when, for how long, and what they did. */
export function Runs() {
  const runs = useLive(StatsService.method.listDispatchRuns, { pageSize: SHOWN }, RUNS_REFRESH_MS);
  return (
    <Refreshed query={runs} loading={<Loading lines={SHOWN} />}>
      {(last) => <RunTable runs={last.runs} />}
    </Refreshed>
  );
}

function RunTable({ runs }: { runs: readonly DispatchRun[] }) {
  if (runs.length === 0) {
    return (
      <Dimmed>
        None yet. A run starts by itself when something is pending, at the latest with the next minute.
      </Dimmed>
    );
  }
  return (
    <DataTable
      items={runs}
      keyOf={({ runId }) => runId}
      minWidth={300}
      space={8}
      columns={[
        { name: "Started", cell: ({ started }) => <Time value={started} relative /> },
        { name: "Took", visibleFrom: "sm", cell: took },
        {
          name: "Attempts",
          ta: "right",
          visibleFrom: "md",
          cell: ({ attempts }) => attempts.toLocaleString(),
        },
        { name: "Delivered", ta: "right", cell: ({ delivered }) => delivered.toLocaleString() },
        { name: "Failed", ta: "right", cell: ({ failed }) => failed.toLocaleString() },
        { name: "In Temporal", ta: "right", visibleFrom: "sm", cell: inTemporal },
      ]}
    />
  );
}

function took({ started, closed }: DispatchRun) {
  if (closed && started) return durationInWords(timestampMs(closed) - timestampMs(started));
  return (
    <Badge variant="light" tt="none">
      Under way
    </Badge>
  );
}

function inTemporal({ url }: DispatchRun) {
  if (url !== undefined) return <TemporalLink href={url}>Open</TemporalLink>;
  return (
    <Dimmed span title="The service knows of no Temporal UI: TEMPORAL_UI_URL names it">
      –
    </Dimmed>
  );
}
