import { Alert, Anchor, Stack, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { generatePath, Link } from "react-router";
import type { Overview } from "../../../../gen/webhook/v1/stats_pb.ts";
import { WebhookHealth, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useAllPages } from "../../api/use-all-pages.ts";
import { LastError } from "../../parts/status/webhook-health.tsx";
import { Breakable } from "../../parts/text/breakable.tsx";
import { countOf } from "../../parts/text/count-of.ts";
import { webhookTitle } from "../../parts/text/webhook-title.ts";

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
