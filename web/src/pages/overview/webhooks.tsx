import { useQuery } from "@connectrpc/connect-query";
import { Alert, Progress, Stack, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { type Overview, StatsService, type WebhookStats } from "../../../../gen/webhook/v1/stats_pb.ts";
import { WebhookHealth, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { failureReason } from "../../api/failure.ts";
import { useAllPages, useLive } from "../../api/queries.ts";
import { typeName } from "../../api/type-names.ts";
import { Loading, Refreshed } from "../../parts/failure.tsx";
import { Dimmed, listPage, PageLink, webhookPage } from "../../parts/inline.tsx";
import { DataTable } from "../../parts/listing.tsx";
import { LastError } from "../../parts/states.tsx";
import { AddressInOneLine, Breakable } from "../../parts/text/breakable.tsx";
import { addressInFull, countOf, durationInWords, webhookTitle } from "../../parts/text/words.ts";
import { useCustomerFilter, useListedCustomer, webhooksOf } from "../customers/filter.tsx";

/** The number of webhooks that are named. */
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
  const filter = useListedCustomer();
  return (
    <PageLink
      to={listPage(PAGE_PATHS.webhooks, { health, ...filter })}
      inherit
      c="inherit"
      underline="always"
    >
      {countOf(count, "webhook is", "webhooks are")} {health}
    </PageLink>
  );
}

/** The failing webhooks with their last errors, the longest failing first. */
function Failing({ count }: { count: number }) {
  const { data } = useLive(
    WebhookService.method.searchWebhooks,
    { health: [WebhookHealth.FAILING], ...webhooksOf(useListedCustomer()) },
    REFRESH_MS,
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
          <PageLink
            to={webhookPage(webhook.id)}
            c="inherit"
            underline="always"
            style={{ overflowWrap: "anywhere" }}
          >
            <Breakable text={webhookTitle(webhook)} />
          </PageLink>
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

/** The age up to which webhooks are not read again, in milliseconds. */
const WEBHOOK_FRESH_MS = 60_000;

type By = "failures" | "slowness";

/** The webhooks of the last 24 hours with the most failed attempts, or whose receivers took longest. */
export function WebhookFigures({ by }: { by: By }) {
  const stats = useAllPages(StatsService.method.listWebhookStats, useCustomerFilter(), {
    refreshMs: REFRESH_MS,
  });
  return (
    <Refreshed query={stats} loading={<Loading lines={SHOWN} />}>
      {({ webhooks }) => <Worst by={by} webhooks={webhooks} />}
    </Refreshed>
  );
}

function Worst({ by, webhooks }: { by: By; webhooks: WebhookStats[] }) {
  const ranked =
    by === "failures"
      ? webhooks
          .filter(({ failedAttempts }) => failedAttempts > 0n)
          .sort((a, b) => Number(b.failedAttempts - a.failedAttempts))
      : webhooks.filter(({ attempts }) => attempts > 0n).sort((a, b) => b.averageMs - a.averageMs);
  const worst = ranked.slice(0, SHOWN);
  if (worst.length === 0) {
    return (
      <Dimmed>
        {by === "failures"
          ? "No attempt failed in the last 24 hours."
          : "None was sent anything in the last 24 hours."}
      </Dimmed>
    );
  }
  return (
    <DataTable
      items={worst}
      keyOf={({ webhookId }) => String(webhookId)}
      minWidth={290}
      verticalSpacing="sm"
      layout="fixed"
      columns={[
        { name: "Webhook", cell: ({ webhookId }) => <WebhookLink id={webhookId} /> },
        ...(by === "failures"
          ? [{ name: "Failed", w: 110, cell: failureShare }]
          : [
              { name: "Average", w: 82, cell: ({ averageMs }: WebhookStats) => durationInWords(averageMs) },
              { name: "Longest", w: 82, cell: ({ longestMs }: WebhookStats) => durationInWords(longestMs) },
            ]),
      ]}
    />
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
    return <Dimmed>Webhook {String(id)}, deleted</Dimmed>;
  }
  const webhook = data?.webhook;
  return (
    <>
      <PageLink
        to={webhookPage(id)}
        display="block"
        truncate
        title={webhook?.url}
        // Read without a gap where the address is cut.
        aria-label={webhook ? (webhook.name ?? addressInFull(webhook.url)) : undefined}
      >
        {webhook ? (webhook.name ?? <AddressInOneLine url={webhook.url} />) : `Webhook ${id}`}
      </PageLink>
      <Dimmed size="xs">{webhook ? typeName(webhook) : "\u00a0"}</Dimmed>
    </>
  );
}

function failureShare({ attempts, failedAttempts }: WebhookStats) {
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
