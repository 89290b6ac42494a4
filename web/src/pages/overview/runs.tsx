import { timestampMs } from "@bufbuild/protobuf/wkt";
import { useQuery } from "@connectrpc/connect-query";
import { Anchor, Badge, Table, Text } from "@mantine/core";
import { IconExternalLink } from "@tabler/icons-react";
import { type DispatchRun, StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { Loading } from "../../parts/status/loading.tsx";
import { Refreshed } from "../../parts/status/refreshed.tsx";
import { durationInWords } from "../../parts/text/duration.ts";
import { Time } from "../../parts/text/time.tsx";

/** The number of items shown. */
const SHOWN = 10;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 3_000;

/** The last dispatch runs: when, for how long, and what they did. */
export function Runs() {
  const runs = useQuery(
    StatsService.method.listDispatchRuns,
    { pageSize: SHOWN },
    { refetchInterval: REFRESH_MS },
  );
  return (
    <Refreshed query={runs} loading={<Loading lines={SHOWN} />}>
      {(last) => <RunTable runs={last.runs} />}
    </Refreshed>
  );
}

function RunTable({ runs }: { runs: readonly DispatchRun[] }) {
  if (runs.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        None yet. A run starts by itself when something is pending, at the latest with the next minute.
      </Text>
    );
  }
  return (
    <Table.ScrollContainer minWidth={300}>
      <Table verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Started</Table.Th>
            <Table.Th visibleFrom="sm">Took</Table.Th>
            <Table.Th ta="right" visibleFrom="md">
              Attempts
            </Table.Th>
            <Table.Th ta="right">Delivered</Table.Th>
            <Table.Th ta="right">Failed</Table.Th>
            <Table.Th ta="right" visibleFrom="sm">
              In Temporal
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {runs.map((run) => (
            <Run key={run.runId} run={run} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Run({ run }: { run: DispatchRun }) {
  const { started, closed, attempts, delivered, failed, url } = run;
  return (
    <Table.Tr>
      <Table.Td>
        <Time value={started} relative />
      </Table.Td>
      <Table.Td visibleFrom="sm">
        {closed && started ? (
          durationInWords(timestampMs(closed) - timestampMs(started))
        ) : (
          <Badge variant="light" tt="none">
            Under way
          </Badge>
        )}
      </Table.Td>
      <Table.Td ta="right" visibleFrom="md">
        {attempts.toLocaleString()}
      </Table.Td>
      <Table.Td ta="right">{delivered.toLocaleString()}</Table.Td>
      <Table.Td ta="right">{failed.toLocaleString()}</Table.Td>
      <Table.Td ta="right" visibleFrom="sm">
        {url === undefined ? (
          <Text
            span
            size="sm"
            c="dimmed"
            title="The service knows of no Temporal UI: TEMPORAL_UI_URL names it"
          >
            –
          </Text>
        ) : (
          <Anchor href={url} target="_blank" rel="noreferrer" size="sm">
            Open <IconExternalLink size={14} aria-label="in a new tab" />
          </Anchor>
        )}
      </Table.Td>
    </Table.Tr>
  );
}
