import { skipToken, useQuery } from "@connectrpc/connect-query";
import { Select, Stack, Text } from "@mantine/core";
import { useMemo } from "react";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { failureReason } from "../../../api/failure.ts";
import { clearButton, isUnlisted, withChosen } from "../../../parts/lists/select-values.ts";
import { readWebhookId } from "./filters.ts";
import { useWebhooks } from "./use-webhooks.ts";

/** The maximum number of webhooks shown. More would be slow; type a part of the URL instead. */
const MAX_SHOWN = 50;

/** Chooses one webhook by its number, event type or address. Shows no choice for an invalid id, which filters nothing. */
export function WebhookSelect(props: { value: string; onChange: (id: string) => void }) {
  const { onChange } = props;
  const webhookId = readWebhookId(props.value);
  const value = webhookId === undefined ? "" : String(webhookId);
  const webhooks = useWebhooks();
  const known = useMemo(() => (webhooks ?? []).map(optionOf), [webhooks]);
  const isMissing = isUnlisted(known, value);
  // A webhook that is not listed was deleted, or registered after the list was read.
  const { data: unlisted, error } = useQuery(
    WebhookService.method.getWebhook,
    webhooks && isMissing && webhookId !== undefined ? { webhookId } : skipToken,
  );
  const data = useMemo(() => {
    const isDeleted = failureReason(error) === "WEBHOOK_NOT_FOUND";
    const label = unlisted?.webhook ? optionOf(unlisted.webhook).label : `#${value}`;
    return withChosen(known, value, isDeleted ? `#${value} · deleted` : label);
  }, [known, value, unlisted, error]);
  return (
    <Select
      aria-label="Webhook"
      placeholder="Any webhook"
      data={data}
      value={value || null}
      onChange={(id) => onChange(id ?? "")}
      searchable
      clearable
      limit={MAX_SHOWN}
      nothingFoundMessage="No webhook matches"
      clearButtonProps={clearButton("Any webhook")}
      renderOption={({ option }) => <Option label={option.label} />}
    />
  );
}

function optionOf({ id, url, webhookProcess }: Webhook) {
  return { value: String(id), label: `#${id} · ${processName(webhookProcess)} · ${url}` };
}

function Option({ label }: { label: string }) {
  const [id, type, url] = label.split(" · ");
  return (
    <Stack gap={0}>
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        {url ?? type}
      </Text>
      <Text size="xs" c="dimmed">
        {url ? `${id} · ${type}` : id}
      </Text>
    </Stack>
  );
}
