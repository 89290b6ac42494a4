import { Stack, Text, Timeline } from "@mantine/core";
import { IconCheck, IconClock, IconX } from "@tabler/icons-react";
import {
  type Attempt,
  type Delivery,
  DeliveryState,
  type Event,
} from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { Section } from "../../../parts/layout/section.tsx";
import { CodeBlock } from "../../../parts/text/code-block.tsx";
import { durationInWords } from "../../../parts/text/duration.ts";
import { Time } from "../../../parts/text/time.tsx";
import { NextAttemptDue, useHeldBack } from "./next-attempt.tsx";
import { resultInWords } from "./result-words.ts";
import { ATTEMPTS_A_ROUND, arrived, roundsOf } from "./rounds.ts";

/** The size of icons, in pixels. */
const ICON_SIZE = 14;
/** The maximum height of a response, in pixels. */
const RESPONSE_HEIGHT = 240;

/** Every attempt of a delivery, newest first, below the next one. */
export function Attempts({
  delivery,
  event,
  attempts,
}: {
  delivery: Delivery;
  /** Undefined if it is not stored any more. */
  event: Event | undefined;
  attempts: readonly Attempt[];
}) {
  const rounds = roundsOf(delivery, attempts);
  const entries = rounds.flatMap((round) => round.attempts.map((attempt) => ({ attempt, round }))).reverse();
  const held = useHeldBack(delivery, event);
  const next = held ?? nextAttempt(delivery);
  const round = rounds.at(-1);
  return (
    <Section title="Attempts">
      {entries.length === 0 && !next ? (
        <Text size="sm" c="dimmed">
          No attempts were made.
        </Text>
      ) : (
        <Timeline
          active={entries.length}
          bulletSize={24}
          lineWidth={2}
          aria-label="Attempts, newest first"
          role="list"
        >
          {next && (
            <Timeline.Item
              role="listitem"
              color="blue"
              bullet={<IconClock size={ICON_SIZE} />}
              title={`Attempt ${delivery.attemptCount + 1}`}
              lineVariant="dashed"
            >
              <Text size="sm">{next}</Text>
              <Facts>
                Round {round?.number}, {(round?.attempts.length ?? 0) + 1} of {ATTEMPTS_A_ROUND}
              </Facts>
            </Timeline.Item>
          )}
          {entries.map(({ attempt, round: of }) => (
            <Timeline.Item
              key={attempt.number}
              role="listitem"
              color={arrived(attempt) ? "green" : "red"}
              bullet={arrived(attempt) ? <IconCheck size={ICON_SIZE} /> : <IconX size={ICON_SIZE} />}
              title={`Attempt ${attempt.number}`}
            >
              <Text size="sm" style={{ overflowWrap: "anywhere" }}>
                {resultInWords(attempt)}
              </Text>
              <Facts>
                Round {of.number}, {of.attempts.indexOf(attempt) + 1} of {ATTEMPTS_A_ROUND} ·{" "}
                <Time value={attempt.started} /> · took {durationInWords(attempt.durationMs)}
              </Facts>
              <ResponseStart attempt={attempt} />
              <AttemptHeaders attempt={attempt} />
            </Timeline.Item>
          ))}
        </Timeline>
      )}
    </Section>
  );
}

/** The time of the next attempt; undefined for none. */
function nextAttempt({ state, nextAttempt: due }: Delivery) {
  switch (state) {
    case DeliveryState.PENDING:
      return "With the next dispatch";
    case DeliveryState.DELIVERING:
      return "In flight, or about to be sent";
    case DeliveryState.RETRYING:
      return due ? <NextAttemptDue due={due} /> : "In flight, or about to be sent";
    default:
      return undefined;
  }
}

function Facts({ children }: { children: React.ReactNode }) {
  return (
    <Text size="xs" c="dimmed" mt={2}>
      {children}
    </Text>
  );
}

function ResponseStart({ attempt }: { attempt: Attempt }) {
  const { responseStart, number } = attempt;
  if (!responseStart?.trim()) return null;
  return (
    <Stack gap={4} mt="xs">
      <Text size="xs" fw={600}>
        Start of the response
      </Text>
      <CodeBlock of={`the response to attempt ${number}`} maxHeight={RESPONSE_HEIGHT} wraps>
        {responseStart}
      </CodeBlock>
    </Stack>
  );
}

/** The headers of one attempt, folded: those of its signature, and those of a response that was no success. */
function AttemptHeaders({ attempt }: { attempt: Attempt }) {
  const { signatureHeaders, signatureRecomputed, responseHeaders, number } = attempt;
  if (signatureHeaders.length + responseHeaders.length === 0) return null;
  return (
    <Text component="details" size="sm" mt="xs">
      <summary>Headers of attempt {number}</summary>
      <Stack gap="xs" mt="xs">
        {signatureHeaders.length > 0 && (
          <Stack gap={4}>
            <Text size="xs" fw={600}>
              {signatureRecomputed ? "Sent; the signature is recomputed with the current secret" : "Sent"}
            </Text>
            <CodeBlock of={`the signature headers of attempt ${number}`} wraps>
              {linesOf(signatureHeaders)}
            </CodeBlock>
          </Stack>
        )}
        {responseHeaders.length > 0 && (
          <Stack gap={4}>
            <Text size="xs" fw={600}>
              Received
            </Text>
            <CodeBlock of={`the response headers of attempt ${number}`} maxHeight={RESPONSE_HEIGHT} wraps>
              {linesOf(responseHeaders)}
            </CodeBlock>
          </Stack>
        )}
      </Stack>
    </Text>
  );
}

const linesOf = (headers: Attempt["responseHeaders"]) =>
  headers.map(({ name, value }) => `${name}: ${value}`).join("\n");
