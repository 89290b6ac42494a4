import { useQuery } from "@connectrpc/connect-query";
import { Box, Button, CloseButton, Code, Group, Stack, Text, Timeline, Title } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { IconCheck, IconClock, IconTerminal2, IconX } from "@tabler/icons-react";
import { useMemo } from "react";
import { useParams } from "react-router";
import {
  type Attempt,
  type Delivery,
  type DeliveryRequest,
  DeliveryService,
  DeliveryState,
  type GetDeliveryResponse,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { Failure } from "../../parts/failure.tsx";
import { Dimmed, deliveryPage, PageLink, webhookPage } from "../../parts/inline.tsx";
import { Table } from "../../parts/listing.tsx";
import { ItemStatus } from "../../parts/lists.tsx";
import { BackLink, PageTitle, Section } from "../../parts/page.tsx";
import { CodeBlock, CopyButton } from "../../parts/text/copy.tsx";
import { layOutJson } from "../../parts/text/json-text.ts";
import { durationInWords } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { AttemptResult } from "./delivery/attempt-result.tsx";
import { curlCommand } from "./delivery/curl-command.ts";
import { ATTEMPTS_A_ROUND, arrived, NextAttemptDue, roundsOf, useHeldBack } from "./delivery/results.tsx";
import { Summary } from "./delivery/summary.tsx";
import { isFinal } from "./delivery-list.tsx";
import { SendAgain } from "./send-one.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 2_000;

/**
 * The page of a delivery: its request, the outcome of each attempt, and the next one. Updates live until the delivery
 * ends.
 */
export default function DeliveryPage() {
  const { id = "" } = useParams();
  return <DeliveryDetails id={id} />;
}

/** A delivery: as a page, or beside a list. @param onClose closes it beside a list; undefined on its page */
export function DeliveryDetails({ id, onClose }: { id: string; onClose?: () => void }) {
  const found = useQuery(
    DeliveryService.method.getDelivery,
    { deliveryId: id },
    {
      refetchInterval: ({ state: { data } }) =>
        data?.delivery && !isFinal(data.delivery) ? REFRESH_MS : false,
    },
  );
  const delivery = found.data?.delivery;
  return (
    <>
      {onClose ? (
        <Group justify="space-between" mb="xs" gap="xs">
          <Title order={2} size="h4">
            <PageLink to={deliveryPage(id)} inherit>
              Delivery {id.slice(-8)}
            </PageLink>
          </Title>
          <Group gap="xs">
            {delivery && <SendAgain delivery={delivery} />}
            <CloseButton aria-label="Close the delivery" onClick={onClose} />
          </Group>
        </Group>
      ) : (
        <>
          <BackLink to={PAGE_PATHS.deliveries}>All deliveries</BackLink>
          <PageTitle
            title="Delivery"
            // The end of the id, as in the list: several deliveries may be open in tabs.
            tab={`Delivery ${id.slice(-8)}`}
            description={
              <Group gap={4} wrap="nowrap">
                <Code>{id}</Code>
                <CopyButton value={id} of="the delivery’s id" />
              </Group>
            }
            actions={delivery && <SendAgain delivery={delivery} />}
          />
        </>
      )}
      {found.data && delivery ? (
        <Stack gap="lg">
          <Failure error={found.error} onRetry={found.refetch} />
          <Summary found={found.data} delivery={delivery} inColumns={!onClose} />
          <Attempts found={found.data} delivery={delivery} />
          <SentRequest found={found.data} delivery={delivery} />
        </Stack>
      ) : (
        <ItemStatus query={found} notFound="DELIVERY_NOT_FOUND" noun="delivery">
          The id is wrong, or the delivery is older than the retention and was deleted.
        </ItemStatus>
      )}
    </>
  );
}

/** The size of icons, in pixels. */
const ICON_SIZE = 14;
/** The maximum height of a response, in pixels. */
const RESPONSE_HEIGHT = 240;

/** A delivery, and what the service told with it. */
interface DeliveryProps {
  found: GetDeliveryResponse;
  delivery: Delivery;
}

/** Every attempt of a delivery, newest first, below the next one. */
function Attempts({ found: { event, attempts, incidentId }, delivery }: DeliveryProps) {
  const rounds = roundsOf(delivery, attempts);
  const entries = rounds.flatMap((round) => round.attempts.map((attempt) => ({ attempt, round }))).reverse();
  const held = useHeldBack(delivery, event);
  const next = held ?? nextAttempt(delivery);
  const round = rounds.at(-1);
  return (
    <Section title="Attempts">
      {entries.length === 0 && !next ? (
        <Dimmed>No attempts were made.</Dimmed>
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
              <Dimmed size="xs" mt={2}>
                Round {round?.number}, {(round?.attempts.length ?? 0) + 1} of {ATTEMPTS_A_ROUND}
              </Dimmed>
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
              <AttemptResult attempt={attempt} delivery={delivery} incidentId={incidentId} />
              <Dimmed size="xs" mt={2}>
                Round {of.number}, {of.attempts.indexOf(attempt) + 1} of {ATTEMPTS_A_ROUND} ·{" "}
                <Time value={attempt.started} /> · took {durationInWords(attempt.durationMs)}
              </Dimmed>
              {attempt.responseStart?.trim() && (
                <Labelled
                  label="Start of the response"
                  of={`the response to attempt ${attempt.number}`}
                  text={attempt.responseStart}
                  mt="xs"
                />
              )}
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
  if (state === DeliveryState.PENDING) return "With the next dispatch";
  if (state === DeliveryState.RETRYING && due) return <NextAttemptDue due={due} />;
  const isOpen = state === DeliveryState.DELIVERING || state === DeliveryState.RETRYING;
  return isOpen ? "In flight, or about to be sent" : undefined;
}

/** @param of the name of the text, for its copy button */
function Labelled({ label, of, text, mt }: { label: string; of: string; text: string; mt?: "xs" }) {
  return (
    <Stack gap={4} mt={mt}>
      <Text size="xs" fw={600}>
        {label}
      </Text>
      <CodeBlock of={of} maxHeight={RESPONSE_HEIGHT} wraps>
        {text}
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
          <Labelled
            label={signatureRecomputed ? "Sent; the signature is recomputed with the current secret" : "Sent"}
            of={`the signature headers of attempt ${number}`}
            text={linesOf(signatureHeaders)}
          />
        )}
        {responseHeaders.length > 0 && (
          <Labelled
            label="Received"
            of={`the response headers of attempt ${number}`}
            text={linesOf(responseHeaders)}
          />
        )}
      </Stack>
    </Text>
  );
}

const linesOf = (headers: Attempt["responseHeaders"]) =>
  headers.map(({ name, value }) => `${name}: ${value}`).join("\n");

/** The maximum height of the body, in pixels. */
const BODY_HEIGHT = 480;
/** The time for which the confirmation is shown, in milliseconds. */
const COPIED_SHOWN_MS = 2_000;

/** Headers that change with each attempt. */
const OF_EACH_ATTEMPT = [
  { name: "webhook-timestamp", value: "the attempt’s time, in seconds since 1970" },
  {
    name: "webhook-signature",
    value:
      "v1, the HMAC-SHA256 of id, timestamp and body; with public-key signatures also v1a, the ed25519 signature of the same",
  },
];

/** The POST that each attempt makes: its headers and its body, exactly as receivers get them. */
function SentRequest({ found: { request, attempts }, delivery }: DeliveryProps) {
  const signature = attempts.at(-1)?.signatureHeaders ?? [];
  if (!request) {
    return (
      <Section title="Request">
        <Dimmed>The event is not kept any more.</Dimmed>
      </Section>
    );
  }
  return (
    <>
      <Section
        title="Request headers"
        actions={
          !request.erased && (
            <CopyAsCurl
              command={curlCommand(delivery.url, [...request.headers, ...signature], request.body)}
            />
          )
        }
      >
        <Stack gap="sm">
          <Code block bd="1px solid var(--mantine-color-default-border)" style={{ whiteSpace: "pre-wrap" }}>
            POST {delivery.url}
          </Code>
          <Headers request={request} />
          <Dimmed>
            The signature is made with the webhook’s signing secret, and its key pair if it has one. Both are
            on{" "}
            <PageLink inherit underline="always" to={webhookPage(delivery.webhookId)}>
              the webhook’s page
            </PageLink>
            . Each attempt above shows its own. The cURL command has those of the latest attempt; endpoints
            that check the timestamp refuse it after five minutes. Custom headers, Authorization and a second
            signature are sent if the webhook has them, but are neither shown here nor in the command.
          </Dimmed>
        </Stack>
      </Section>
      {request.erased ? (
        <Section title="Request body">
          <Dimmed>The payload was erased.</Dimmed>
        </Section>
      ) : (
        <Body body={request.body} />
      )}
    </>
  );
}

function CopyAsCurl({ command }: { command: string }) {
  const { copy, copied, error } = useClipboard({ timeout: COPIED_SHOWN_MS });
  return (
    <Button
      variant="default"
      leftSection={copied ? <IconCheck size={14} /> : <IconTerminal2 size={14} />}
      onClick={() => copy(command)}
    >
      {error ? "Your browser does not allow copying" : copied ? "Copied" : "Copy as cURL"}
    </Button>
  );
}

function Headers({ request }: { request: DeliveryRequest }) {
  const rows = [
    ...request.headers,
    ...OF_EACH_ATTEMPT.map(({ name, value }) => ({ name, value, changes: true })),
  ].map((header) => ({ changes: false, ...header }));
  return (
    <Table aria-label="Headers" isFixed>
      <tbody>
        {rows.map(({ name, value, changes }) => (
          <tr key={`${changes} ${name}`}>
            <Box component="th" scope="row" w={{ base: 150, sm: 260 }} style={{ verticalAlign: "top" }}>
              <Text span size="sm" ff="monospace" style={{ overflowWrap: "anywhere" }}>
                {name}
              </Text>
            </Box>
            <td>
              {changes ? (
                <Dimmed span>Changes with each attempt: {value}</Dimmed>
              ) : (
                <Text span size="sm" ff="monospace" style={{ overflowWrap: "anywhere" }}>
                  {value}
                </Text>
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function Body({ body }: { body: string }) {
  const laidOut = useMemo(() => layOutJson(body), [body]);
  return (
    <Section
      title="Request body"
      actions={<Dimmed>{new TextEncoder().encode(body).length.toLocaleString()} bytes</Dimmed>}
    >
      <CodeBlock of="the body as it is sent" copied={body} maxHeight={BODY_HEIGHT}>
        {laidOut}
      </CodeBlock>
    </Section>
  );
}
