import { useMutation } from "@connectrpc/connect-query";
import { Button, Stack, Table, Text } from "@mantine/core";
import { generatePath } from "react-router";
import { type TryWebhookFilterResponse, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { fieldFailures } from "../../../api/failure.ts";
import { Failure } from "../../../parts/status/failure.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { ShortId } from "../../../parts/text/short-id.tsx";
import { Time } from "../../../parts/text/time.tsx";

export interface FilterTrialProps {
  webhookId: bigint;
  /** The filter in the field. */
  filter: string;
  /** Receives the error of an invalid filter. */
  onInvalid: (fault: string) => void;
}

/** Tries a filter on the latest events, and shows what it would do with them until the filter changes. */
export function FilterTrial({ webhookId, filter, onInvalid }: FilterTrialProps) {
  const trial = useMutation(WebhookService.method.tryWebhookFilter, {
    onError(error) {
      const fault = fieldFailures(error).filter;
      if (fault !== undefined) onInvalid(fault);
    },
  });
  const isCurrent = trial.variables?.filter === filter;
  const isInvalid = trial.error !== null && fieldFailures(trial.error).filter !== undefined;
  return (
    <>
      <Button
        variant="default"
        style={{ alignSelf: "flex-start" }}
        loading={trial.isPending}
        disabled={filter === ""}
        onClick={() => trial.mutate({ webhookId, filter })}
      >
        Try on the latest events
      </Button>
      {isCurrent && trial.error && !isInvalid && <Failure error={trial.error} />}
      {isCurrent && trial.data && <Result result={trial.data} />}
    </>
  );
}

function Result({ result: { examined, matched, failed, events } }: { result: TryWebhookFilterResponse }) {
  if (examined === 0) return <Text size="sm">There are no events of this type yet to try it on.</Text>;
  return (
    <Stack gap="xs" role="status">
      <Text size="sm">
        {matched.toLocaleString("en-US")} of the latest {countOf(examined, "event", "events")} match
        {failed > 0 && `; ${failed.toLocaleString("en-US")} are sent because it cannot be evaluated`}.
      </Text>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Published</Table.Th>
            <Table.Th>Event</Table.Th>
            <Table.Th>Result</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {events.map(({ eventId, published, subject, sent, error }) => (
            <Table.Tr key={eventId}>
              <Table.Td>
                <Time value={published} relative />
              </Table.Td>
              <Table.Td>
                {subject ?? (
                  <ShortId
                    id={eventId}
                    of="the event’s id"
                    to={generatePath(PAGE_PATHS.event, { id: eventId })}
                  />
                )}
              </Table.Td>
              <Table.Td>{sent ? (error ?? "Sent") : "Filtered"}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Stack>
  );
}
