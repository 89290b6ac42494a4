import { useQuery } from "@connectrpc/connect-query";
import { Box, List } from "@mantine/core";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay } from "../../api/session.tsx";
import { BASE_PATH } from "../../base-path.ts";
import { PageLink, webhookPage } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { CodeBlock } from "../../parts/text/copy.tsx";

/**
 * Says how to begin, unless the log has a delivery. To be shown only where the overview counts none: it counts those that
 * were delivered in the last 24 hours, not older ones.
 */
export function FirstSteps() {
  const mayWrite = useMay("Write_Administrative_Data");
  const managesKeys = useMay("Manage_Api_Keys");
  const { webhooks } = useQuery(WebhookService.method.searchWebhooks, { pageSize: 2 }).data ?? {};
  const log = useQuery(DeliveryService.method.listDeliveries, { pageSize: 1 });
  // A search that stopped early does not know.
  const isUnused = log.data?.deliveries.length === 0 && !log.data.searchedBackTo;
  if (!webhooks || !mayWrite || !isUnused) return null;
  const isEmpty = webhooks.length === 0;
  return (
    <Section
      title="First steps"
      description={isEmpty ? "Nothing is registered here yet." : "Nothing has been sent yet."}
    >
      <List type="ordered" size="sm" spacing="xs">
        {isEmpty && managesKeys && (
          <List.Item>
            <Step to={PAGE_PATHS.keys}>Make an API key</Step> for each application that registers webhooks or
            publishes events.
          </List.Item>
        )}
        {isEmpty && (
          <List.Item>
            <Step to={PAGE_PATHS.newWebhook}>Register a webhook</Step>: an event type, and the https address
            of its endpoint.
          </List.Item>
        )}
        <List.Item>
          {isEmpty ? (
            "Send a test event from its page"
          ) : (
            <Step to={testPage(webhooks)}>Send a test event</Step>
          )}{" "}
          to verify delivery.
        </List.Item>
        <List.Item>
          Publish an event with a key that has the permission Publish_Events, in place of {KEY_PLACEHOLDER}:
        </List.Item>
      </List>
      <Box mt="xs">
        <CodeBlock of="Command that publishes an event">
          {publishCommand(window.location.origin + BASE_PATH)}
        </CodeBlock>
      </Box>
    </Section>
  );
}

/** The page of the only webhook, or the list. */
function testPage(webhooks: readonly Webhook[]): string {
  const [first, second] = webhooks;
  if (!first || second) return PAGE_PATHS.webhooks;
  return webhookPage(first.id);
}

/** Stands where the command takes an API key. */
const KEY_PLACEHOLDER = "YOUR_API_KEY";

/** A command that publishes an event over Connect, which needs nothing but curl. */
function publishCommand(address: string): string {
  return `curl -sS ${address}/${EventService.typeName}/${EventService.method.publishEvent.name} \\
  -H 'X-Service-Key: ${KEY_PLACEHOLDER}' -H 'Content-Type: application/json' -d '{
    "idempotencyKey": "first-event",
    "userId": "tenant-42",
    "orderDispatched": {
      "orderId": "1001",
      "orderNumber": "SO-1001",
      "dispatchedAt": "2026-11-21T09:30:00Z"
    }
  }'`;
}

function Step({ to, children }: { to: string; children: string }) {
  return (
    <PageLink to={to} inherit underline="always">
      {children}
    </PageLink>
  );
}
