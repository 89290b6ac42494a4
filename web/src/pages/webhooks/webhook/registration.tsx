import { Anchor, Box, Button, Code, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPencil } from "@tabler/icons-react";
import { createSearchParams, Link } from "react-router";
import { ApiKeyService } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import {
  NUMBER_NAMES,
  type NumberName,
  numberSetting,
} from "../../../../../src/contract/webhooks/settings.ts";
import { useMay } from "../../../api/session.tsx";
import { useAllPages } from "../../../api/use-all-pages.ts";
import { type Fact, Facts } from "../../../parts/layout/facts.tsx";
import { Section } from "../../../parts/layout/section.tsx";
import { WebhookHealthBadges } from "../../../parts/status/webhook-health.tsx";
import { Breakable } from "../../../parts/text/breakable.tsx";
import { capitalized } from "../../../parts/text/capitalized.ts";
import { CopyButton } from "../../../parts/text/copy-button.tsx";
import { Time } from "../../../parts/text/time.tsx";
import { useEventTypes } from "../new/use-event-types.ts";
import { EditWebhook } from "./edit-webhook.tsx";

/** The registration of a webhook: event type, URL, key, app and times. */
export function Registration({ webhook }: { webhook: Webhook }) {
  const { data: types } = useEventTypes();
  const mayWrite = useMay("Write_Administrative_Data");
  const type = types?.processes.find(({ number }) => number === webhook.webhookProcess);
  return (
    <Section title="Registration" actions={mayWrite && <Edit webhook={webhook} />}>
      <Facts
        facts={[
          ["State", <WebhookHealthBadges key="state" webhook={webhook} />],
          [
            "Event type",
            <>
              {processName(webhook.webhookProcess)}
              <Text size="xs" c="dimmed" mih="1lh">
                {type?.description}
              </Text>
            </>,
          ],
          webhook.name !== undefined && ["Name", webhook.name],
          ["URL", <Copied key="url" value={webhook.url} of="the URL" />],
          ["Id", <Copied key="id" value={String(webhook.id)} of="the webhook’s id" />],
          ["Installed app", webhook.applicationName ?? webhook.application ?? "None"],
          ["API key", <ApiKeyName key="key" id={webhook.apiKeyId} />],
          ...NUMBER_NAMES.map(
            (name): Fact => [numberSetting(name).field.label, inWords(name, webhook[name])],
          ),
          ["Created", <Time key="created" value={webhook.created} />],
          ["Changed", <Time key="modified" value={webhook.modified} />],
        ]}
      />
    </Section>
  );
}

function Copied({ value, of }: { value: string; of: string }) {
  return (
    <Group gap={4} wrap="nowrap" align="flex-start">
      <span>
        <Breakable text={value} />
      </span>
      {/* As high as the text beside it. */}
      <Box my={-4}>
        <CopyButton value={value} of={of} />
      </Box>
    </Group>
  );
}

/** The name of the key that owns the webhook, for who may see keys; its id for others. */
function ApiKeyName({ id }: { id: string }) {
  const maySee = useMay("Manage_Api_Keys");
  const { data } = useAllPages(ApiKeyService.method.listApiKeys, {}, { enabled: maySee });
  const key = data?.apiKeys.find((each) => each.id === id);
  if (!key) return <Code>{id}</Code>;
  return (
    <Anchor
      component={Link}
      to={`${PAGE_PATHS.keys}?${createSearchParams({ search: key.prefix })}`}
      size="sm"
    >
      {key.name}
    </Anchor>
  );
}

function inWords(name: NumberName, value: number | undefined): string {
  const { field } = numberSetting(name);
  if (value === undefined) return capitalized(field.none);
  return field.inWords(value / field.factor);
}

function Edit({ webhook }: { webhook: Webhook }) {
  const [opened, { open, close }] = useDisclosure();
  return (
    <>
      <Button variant="default" leftSection={<IconPencil size={16} />} onClick={open}>
        Edit
      </Button>
      <EditWebhook webhook={webhook} opened={opened} onClose={close} />
    </>
  );
}
