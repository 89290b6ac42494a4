import { useMutation, useQuery } from "@connectrpc/connect-query";
import { Anchor, Button, Group, Stack, Text } from "@mantine/core";
import { useEffect } from "react";
import { generatePath, Link } from "react-router";
import {
  type Attempt,
  DeliveryService,
  DeliveryState,
  type GetDeliveryResponse,
} from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { StatsService } from "../../../../../gen/webhook/v1/stats_pb.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useOwnApp } from "../../../api/session.tsx";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { DeliveryStateBadge } from "../../../parts/status/delivery-state.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { Loading } from "../../../parts/status/loading.tsx";
import { NextRetry } from "../../../parts/status/next-retry.tsx";
import { countOf } from "../../../parts/text/count-of.ts";
import { durationInWords } from "../../../parts/text/duration.ts";
import { REASONS } from "../../deliveries/delivery/result-words.ts";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 1_000;

/** Follows the delivery of a test event to its end. */
export function TestOutcome({ deliveryId }: { deliveryId: string }) {
  const { data, error, refetch } = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId },
    { refetchInterval: ({ state }) => (state.data?.delivery?.finished ? false : REFRESH_MS) },
  );
  const state = data?.delivery?.state;
  const dispatch = useMutation(StatsService.method.dispatchNow);
  const readAnew = useReadAnew();
  // A run sends the deliveries of all webhooks: keys of apps cannot start one.
  const isOfApp = useOwnApp() !== undefined;
  useEffect(() => {
    if (state === undefined) return;
    // The list of the webhook's deliveries, below, says the same at the same time.
    void readAnew(DeliveryService.method.listDeliveries);
  }, [state, readAnew]);

  if (!data?.delivery) {
    return error ? <Failure error={error} onRetry={() => void refetch()} /> : <Loading lines={2} />;
  }
  const { delivery } = data;
  return (
    <Stack gap="sm">
      <Group gap="sm">
        <DeliveryStateBadge state={delivery.state} />
        <Text size="sm" role="status">
          {inWords(data)}
        </Text>
        {delivery.state === DeliveryState.RETRYING && delivery.nextAttempt && (
          <Text size="sm">
            <NextRetry due={delivery.nextAttempt} />
          </Text>
        )}
      </Group>
      <Group gap="md">
        {delivery.state === DeliveryState.PENDING && !isOfApp && !dispatch.isSuccess && (
          <Button
            size="xs"
            variant="default"
            loading={dispatch.isPending}
            onClick={() => dispatch.mutate({})}
          >
            Dispatch now
          </Button>
        )}
        <Anchor component={Link} to={generatePath(PAGE_PATHS.delivery, { id: deliveryId })} size="sm">
          The delivery, with every attempt
        </Anchor>
      </Group>
      {dispatch.isError && <Failure error={dispatch.error} title="Nothing was dispatched" />}
    </Stack>
  );
}

/** The outcome of a delivery so far, in a sentence. */
function inWords({ delivery, attempts }: GetDeliveryResponse): string {
  const last = attempts.at(-1);
  const said = last ? answerInWords(last) : (delivery?.reason ?? "");
  const ended = REASONS[delivery?.reason ?? ""];
  switch (delivery?.state) {
    case DeliveryState.PENDING:
      return "It waits for the next dispatch.";
    case DeliveryState.DELIVERING:
      return "It is being sent.";
    case DeliveryState.RETRYING:
      return `Attempt ${last?.number ?? 1} failed: ${said}.`;
    case DeliveryState.DELIVERED:
      return `Delivered: ${said} after ${durationInWords(last?.durationMs ?? 0)}.`;
    case DeliveryState.FAILED:
      if (ended !== undefined) return ended;
      return last
        ? `It failed after ${countOf(delivery.attemptCount, "attempt", "attempts")}. The last: ${said}.`
        : `It failed: ${said}.`;
    case DeliveryState.CANCELLED:
      return ended ?? "It was cancelled.";
    default:
      return "";
  }
}

function answerInWords({ status, error }: Attempt): string {
  return error ?? (status === undefined ? "no answer" : `the endpoint answered ${status}`);
}
