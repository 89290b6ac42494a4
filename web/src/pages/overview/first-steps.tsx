import { useQuery } from "@connectrpc/connect-query";
import { Anchor, List } from "@mantine/core";
import { Link } from "react-router";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/page-paths.ts";
import { isReachable } from "../../api/reachable.ts";
import { useMay } from "../../api/session.tsx";
import { Section } from "../../parts/section.tsx";

/** Says where to begin, while no webhook is registered. To be shown only where nothing has been sent. */
export function FirstSteps() {
  const mayWrite = useMay("Write_Administrative_Data");
  const managesKeys = useMay("Manage_Api_Keys");
  const list = useQuery(WebhookService.method.listWebhooks, {});
  if (list.data?.webhooks.filter(isReachable).length !== 0 || !mayWrite) return null;
  return (
    <Section title="First steps" description="Nothing is registered here yet.">
      <List type="ordered" size="sm" spacing="xs">
        {managesKeys && (
          <List.Item>
            <Step to={PAGE_PATHS.keys}>Make an API key</Step> for each application that registers webhooks or
            publishes events.
          </List.Item>
        )}
        <List.Item>
          <Step to={`${PAGE_PATHS.webhooks}?new=1`}>Register a webhook</Step>: an event type, and the https
          address of its receiver.
        </List.Item>
        <List.Item>Send it a test event from its page, and see here and there what becomes of it.</List.Item>
        <List.Item>
          Publish events:{" "}
          <Anchor href="/docs" target="_blank" inherit underline="always">
            the API documentation
          </Anchor>{" "}
          says how.
        </List.Item>
      </List>
    </Section>
  );
}

function Step({ to, children }: { to: string; children: string }) {
  return (
    <Anchor component={Link} to={to} inherit underline="always">
      {children}
    </Anchor>
  );
}
