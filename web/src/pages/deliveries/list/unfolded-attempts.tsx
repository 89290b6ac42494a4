import { useQuery } from "@connectrpc/connect-query";
import { ActionIcon, Group, Stack, Text } from "@mantine/core";
import { IconCheck, IconChevronDown, IconChevronRight, IconX } from "@tabler/icons-react";
import { type Attempt, type Delivery, DeliveryService } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { Loading } from "../../../parts/status/loading.tsx";
import { Refreshed } from "../../../parts/status/refreshed.tsx";
import { durationInWords } from "../../../parts/text/duration.ts";
import { Time } from "../../../parts/text/time.tsx";
import { resultInWords } from "../delivery/result-words.ts";
import { arrived } from "../delivery/rounds.ts";
import { isFinal } from "./selection.ts";

/** The size of icons, in pixels. */
const ICON_SIZE = 12;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 4_000;

/** Shows or hides the attempts of a delivery below it. */
export function UnfoldButton({
  delivery: { id },
  unfolded,
  onToggle,
}: {
  delivery: Delivery;
  unfolded: boolean;
  onToggle: () => void;
}) {
  const Icon = unfolded ? IconChevronDown : IconChevronRight;
  return (
    <ActionIcon
      size={18}
      variant="subtle"
      color="gray"
      aria-label={`Attempts of delivery ${id}`}
      aria-expanded={unfolded}
      title={unfolded ? "Hide the attempts" : "Show the attempts"}
      onClick={onToggle}
    >
      <Icon size={ICON_SIZE} />
    </ActionIcon>
  );
}

/** The attempts of a delivery, newest first, with one line each. They are read when they are shown. */
export function UnfoldedAttempts({ delivery }: { delivery: Delivery }) {
  const found = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId: delivery.id },
    {
      // Until what was read is what the list shows as the end.
      refetchInterval: ({ state: { data } }) =>
        isFinal(delivery) &&
        data?.delivery?.state === delivery.state &&
        data.delivery.attemptCount === delivery.attemptCount
          ? false
          : REFRESH_MS,
    },
  );
  return (
    <Refreshed query={found} loading={<Loading lines={1} />}>
      {({ attempts }) =>
        attempts.length === 0 ? (
          <Text size="sm" c="dimmed">
            {isFinal(delivery) ? "No attempts were made." : "No attempts were made yet."}
          </Text>
        ) : (
          <Stack
            component="ul"
            gap={2}
            p={0}
            m={0}
            style={{ listStyle: "none" }}
            aria-label={`Attempts of delivery ${delivery.id}, newest first`}
          >
            {attempts.toReversed().map((attempt) => (
              <Line key={attempt.number} attempt={attempt} />
            ))}
          </Stack>
        )
      }
    </Refreshed>
  );
}

function Line({ attempt }: { attempt: Attempt }) {
  const { number, started, durationMs } = attempt;
  const isGood = arrived(attempt);
  const Icon = isGood ? IconCheck : IconX;
  return (
    <Group component="li" gap="md" align="baseline" className="figures" style={{ rowGap: 0 }}>
      <Text span size="sm" miw={80}>
        <Text span inherit c={isGood ? "var(--rate-delivered)" : "var(--mantine-color-error)"} aria-hidden>
          <Icon size={ICON_SIZE} />
        </Text>{" "}
        Attempt {number}
      </Text>
      <Text span size="sm" c="dimmed">
        <Time value={started} />
      </Text>
      <Text span size="sm" flex="1 1 12rem" style={{ overflowWrap: "anywhere" }}>
        {resultInWords(attempt)}
      </Text>
      <Text span size="sm" c="dimmed">
        took {durationInWords(durationMs)}
      </Text>
    </Group>
  );
}
