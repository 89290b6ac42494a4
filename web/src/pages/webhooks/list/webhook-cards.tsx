import { Card, Group, Stack, Text } from "@mantine/core";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { LastError, WebhookHealthBadges } from "../../../parts/status/webhook-health.tsx";
import { Time } from "../../../parts/text/time.tsx";
import { AttemptBars } from "./attempt-bars.tsx";
import { Success } from "./success.tsx";
import { ApplicationName, OtherTypes, WebhookLink, type WebhookRowsProps } from "./webhook-table.tsx";

/** Webhooks on a narrow screen. */
export function WebhookCards({ webhooks, lastDay, histories, period, others }: WebhookRowsProps) {
  return (
    <Stack gap="sm" component="ul" p={0} m={0} style={{ listStyle: "none" }}>
      {webhooks.map((webhook) => (
        <Card key={String(webhook.id)} component="li" withBorder padding="md">
          <Stack gap="xs">
            <Group justify="space-between" gap="xs" wrap="nowrap" align="flex-start">
              <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
                {processName(webhook.webhookProcess)}
                <Text span fw={400} c="dimmed">
                  <OtherTypes of={webhook} others={others.get(webhook.id)} />
                  <ApplicationName webhook={webhook} />
                </Text>
              </Text>
              <WebhookHealthBadges webhook={webhook} />
            </Group>
            <WebhookLink webhook={webhook} />
            <LastError webhook={webhook} />
            <Group justify="space-between" gap="xs" align="flex-end">
              <Success of={webhook} lastDay={lastDay} />
              <AttemptBars history={histories?.get(webhook.id)} period={period} withLatency />
            </Group>
            <Text size="xs" c="dimmed">
              Created <Time value={webhook.created} />
            </Text>
          </Stack>
        </Card>
      ))}
    </Stack>
  );
}
