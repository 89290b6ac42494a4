import { Select, Stack, Text } from "@mantine/core";
import { useMemo } from "react";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { useWebhooks } from "./use-webhooks.ts";

/** The maximum number of webhooks shown. More would be slow; type a part of the URL instead. */
const MAX_SHOWN = 50;

/** Chooses one webhook by its number, event type or address. */
export function WebhookSelect({ value, onChange }: { value: string; onChange: (id: string) => void }) {
  const webhooks = useWebhooks();
  const data = useMemo(() => {
    const known = (webhooks ?? []).map(({ id, url, webhookProcess }) => ({
      value: String(id),
      label: `#${id} · ${processName(webhookProcess)} · ${url}`,
    }));
    // A webhook that was deleted has deliveries too.
    if (value === "" || known.some((each) => each.value === value)) return known;
    return [{ value, label: webhooks ? `#${value} · deleted` : `#${value}` }, ...known];
  }, [webhooks, value]);
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
      clearButtonProps={{ "aria-label": "Any webhook" }}
      renderOption={({ option }) => <Option label={option.label} />}
    />
  );
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
