import { Anchor, Button, Group, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPencil, IconPlus } from "@tabler/icons-react";
import { generatePath, Link } from "react-router";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useMay } from "../../../api/session.tsx";
import { Section } from "../../../parts/layout/section.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { WebhookHealthBadges } from "../../../parts/status/webhook-health.tsx";
import { EventTypesDialog } from "./event-types-dialog.tsx";
import { useEndpoint } from "./use-endpoint.ts";

/** The event types that are sent to a webhook's endpoint, each with a link to its page, and the button that changes them. */
export function EventTypesSection({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { webhooks, isKnown, error, retry } = useEndpoint(webhook);
  const [editing, { open, close }] = useDisclosure();
  const isShared = webhooks.length > 1;
  return (
    <Section
      title="Event types"
      description={
        isShared || !isKnown
          ? "They share the URL, the signing secret, the rate limit and all settings except filters."
          : "This endpoint gets one event type. Others can share its URL, its signing secret and its settings."
      }
      actions={
        mayWrite && (
          <Button
            variant="default"
            leftSection={isShared ? <IconPencil size={16} /> : <IconPlus size={16} />}
            onClick={open}
            disabled={!isKnown}
          >
            {isShared ? "Change event types" : "Add event types"}
          </Button>
        )
      }
    >
      {error !== null && <Failure error={error} onRetry={retry} />}
      <Stack
        component="ul"
        gap="xs"
        p={0}
        m={0}
        style={{ listStyle: "none" }}
        aria-label="Event types of this endpoint"
      >
        {webhooks.map((each) => (
          <Group key={String(each.id)} component="li" gap="sm" justify="space-between">
            <TypeLink of={each} isCurrent={each.id === webhook.id} />
            <WebhookHealthBadges webhook={each} />
          </Group>
        ))}
      </Stack>
      <EventTypesDialog webhook={webhook} webhooks={webhooks} opened={editing} onClose={close} />
    </Section>
  );
}

function TypeLink({ of: { id, webhookProcess }, isCurrent }: { of: Webhook; isCurrent: boolean }) {
  if (isCurrent) {
    return (
      <Text size="sm" fw={600} aria-current="page" style={{ overflowWrap: "anywhere" }}>
        {processName(webhookProcess)}
      </Text>
    );
  }
  return (
    <Anchor
      component={Link}
      to={generatePath(PAGE_PATHS.webhook, { id: String(id) })}
      size="sm"
      style={{ overflowWrap: "anywhere" }}
    >
      {processName(webhookProcess)}
    </Anchor>
  );
}
