import { useQuery } from "@connectrpc/connect-query";
import { Alert, Anchor, Progress, Stack, Table, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { generatePath, Link } from "react-router";
import { type Overview, StatsService, type WebhookStats } from "../../../../gen/webhook/v1/stats_pb.ts";
import { WebhookHealth, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { failureReason } from "../../api/failure.ts";
import { useAllPages } from "../../api/queries.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { LastError } from "../../parts/states.tsx";
import { AddressInOneLine, Breakable } from "../../parts/text/breakable.tsx";
import { addressInFull, countOf, durationInWords, webhookTitle } from "../../parts/text/words.ts";

/** Failing webhooks that are named. */
const SHOWN = 5;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 15_000;

/** `3 webhooks are failing`, with the first of them, and how many are degraded; nothing while all are healthy. */
export function TroubledWebhooks({ overview }: { overview: Overview }) {
  const [failing, degraded] = [Number(overview.failingWebhooks), Number(overview.degradedWebhooks)];
  if (failing + degraded === 0) return null;
  return (
    <Alert
      color={failing > 0 ? "red" : "orange"}
      variant="light"
      icon={<IconAlertTriangle />}
      title={failing > 0 ? <ListLink count={failing} health="failing" /> : undefined}
      // As a status, each change of the counts and times would be announced.
      role="note"
    >
      <Stack gap="xs">
        {failing > 0 && <Failing key={failing} count={failing} />}
        {degraded > 0 && (
          <Text size="sm" fw={600}>
            <ListLink count={degraded} health="degraded" />
          </Text>
        )}
      </Stack>
    </Alert>
  );
}

/** `3 webhooks are failing`, leading to the list of them. */
function ListLink({ count, health }: { count: number; health: "failing" | "degraded" }) {
  return (
    <Anchor
      component={Link}
      to={`${PAGE_PATHS.webhooks}?health=${health}`}
      inherit
      c="inherit"
      underline="always"
    >
      {countOf(count, "webhook is", "webhooks are")} {health}
    </Anchor>
  );
}

/** The failing webhooks with their last errors, the longest failing first. */
function Failing({ count }: { count: number }) {
  const { data } = useAllPages(
    WebhookService.method.listWebhooks,
    { health: [WebhookHealth.FAILING] },
    { refreshMs: REFRESH_MS },
  );
  if (!data) return null;
  const since = (seconds: bigint | undefined) => Number(seconds ?? 0n);
  const first = [...data.webhooks]
    .sort((a, b) => since(a.failingSince?.seconds) - since(b.failingSince?.seconds))
    .slice(0, SHOWN);
  return (
    <Stack gap={6} component="ul" p={0} m={0} style={{ listStyle: "none" }}>
      {first.map((webhook) => (
        <li key={String(webhook.id)}>
          <Anchor
            component={Link}
            to={generatePath(PAGE_PATHS.webhook, { id: String(webhook.id) })}
            size="sm"
            c="inherit"
            underline="always"
            style={{ overflowWrap: "anywhere" }}
          >
            <Breakable text={webhookTitle(webhook)} />
          </Anchor>
          <LastError webhook={webhook} />
        </li>
      ))}
      {count > SHOWN && (
        <Text component="li" size="sm">
          and {(count - SHOWN).toLocaleString()} more
        </Text>
      )}
    </Stack>
  );
}

/** The number of items shown. */
const RANKED = 5;
/** The age up to which webhooks are not read again, in milliseconds. */
const WEBHOOK_FRESH_MS = 60_000;

/** The webhooks, and the figures shown of each. */
export interface WebhookFiguresProps {
  by: "failures" | "slowness";
}

/** The webhooks of the last 24 hours with the most failed attempts, or whose receivers took longest. */
export function WebhookFigures({ by }: WebhookFiguresProps) {
  const stats = useAllPages(StatsService.method.listWebhookStats, {}, { refreshMs: REFRESH_MS });
  return (
    <Refreshed query={stats} loading={<Loading lines={RANKED} />}>
      {({ webhooks }) => <Worst by={by} webhooks={webhooks} />}
    </Refreshed>
  );
}

function Worst({ by, webhooks }: WebhookFiguresProps & { webhooks: WebhookStats[] }) {
  const worst = by === "failures" ? mostFailing(webhooks) : slowest(webhooks);
  if (worst.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        {by === "failures"
          ? "No attempt failed in the last 24 hours."
          : "None was sent anything in the last 24 hours."}
      </Text>
    );
  }
  return (
    <Table.ScrollContainer minWidth={290}>
      <Table verticalSpacing="sm" layout="fixed">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Webhook</Table.Th>
            <Table.Th w={by === "failures" ? 110 : 82}>{by === "failures" ? "Failed" : "Average"}</Table.Th>
            {by === "slowness" && <Table.Th w={82}>Longest</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {worst.map((each) => (
            <Table.Tr key={String(each.webhookId)}>
              <Table.Td>
                <WebhookLink id={each.webhookId} />
              </Table.Td>
              {by === "failures" ? (
                <Table.Td>
                  <FailureShare {...each} />
                </Table.Td>
              ) : (
                <>
                  <Table.Td>{durationInWords(each.averageMs)}</Table.Td>
                  <Table.Td>{durationInWords(each.longestMs)}</Table.Td>
                </>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** A webhook by its address and event type; by its number once it is deleted. */
function WebhookLink({ id }: { id: bigint }) {
  const { data, error } = useQuery(
    WebhookService.method.getWebhook,
    { webhookId: id },
    { staleTime: WEBHOOK_FRESH_MS },
  );
  if (failureReason(error) === "WEBHOOK_NOT_FOUND") {
    return (
      <Text size="sm" c="dimmed">
        Webhook {String(id)}, deleted
      </Text>
    );
  }
  const webhook = data?.webhook;
  return (
    <>
      <Anchor
        component={Link}
        to={generatePath(PAGE_PATHS.webhook, { id: String(id) })}
        size="sm"
        display="block"
        truncate
        title={webhook?.url}
        // Read without a gap where the address is cut.
        aria-label={webhook ? (webhook.name ?? addressInFull(webhook.url)) : undefined}
      >
        {webhook ? (webhook.name ?? <AddressInOneLine url={webhook.url} />) : `Webhook ${id}`}
      </Anchor>
      <Text size="xs" c="dimmed">
        {webhook ? processName(webhook.webhookProcess) : "\u00a0"}
      </Text>
    </>
  );
}

function FailureShare({ attempts, failedAttempts }: WebhookStats) {
  const share = (100 * Number(failedAttempts)) / Number(attempts);
  return (
    <>
      <Text size="sm">
        {failedAttempts.toLocaleString()} of {attempts.toLocaleString()}
      </Text>
      <Progress
        value={share}
        color="red"
        size="xs"
        aria-label={`${Math.round(share)} % of the attempts failed`}
      />
    </>
  );
}

function mostFailing(webhooks: WebhookStats[]): WebhookStats[] {
  return webhooks
    .filter(({ failedAttempts }) => failedAttempts > 0n)
    .sort((a, b) => Number(b.failedAttempts - a.failedAttempts))
    .slice(0, RANKED);
}

function slowest(webhooks: WebhookStats[]): WebhookStats[] {
  return webhooks
    .filter(({ attempts }) => attempts > 0n)
    .sort((a, b) => b.averageMs - a.averageMs)
    .slice(0, RANKED);
}
