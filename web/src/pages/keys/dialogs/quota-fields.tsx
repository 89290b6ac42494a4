import { NumberInput, SimpleGrid } from "@mantine/core";
import type { UseFormReturnType } from "@mantine/form";
import type { ApiKey } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { fromOne } from "../../../parts/dialogs/from-one.ts";

const FIELDS = [
  {
    name: "webhooks",
    label: "Webhooks",
    description: "The most that may belong to the key.",
    max: 1_000_000,
  },
  {
    name: "eventsPerSecond",
    label: "Events per second",
    description: "The most that may be published with the key.",
    max: 100_000,
  },
] as const;

type QuotaName = (typeof FIELDS)[number]["name"];

/** The part of a form's values with the quotas of a key; "" for none. */
export interface QuotaValues {
  quotas: Record<QuotaName, number | string>;
}

/** The validation of the quotas in a form. */
export const QUOTA_RULES = { webhooks: fromOne("no quota"), eventsPerSecond: fromOne("no quota") };

/** The form's values for a key; empty for a new one. */
export function quotaValuesOf(key: ApiKey | undefined): QuotaValues["quotas"] {
  return { webhooks: key?.quotas?.webhooks || "", eventsPerSecond: key?.quotas?.eventsPerSecond || "" };
}

/** The request's quotas for a form's values. */
export function quotasOf({ webhooks, eventsPerSecond }: QuotaValues["quotas"]) {
  return { webhooks: Number(webhooks || 0), eventsPerSecond: Number(eventsPerSecond || 0) };
}

/** Asks for the quotas of a key. */
export function QuotaFields({
  form,
}: {
  form: Pick<UseFormReturnType<QuotaValues>, "key" | "getInputProps">;
}) {
  return (
    <SimpleGrid cols={{ base: 1, xs: 2 }}>
      {FIELDS.map(({ name, ...field }) => (
        <NumberInput
          key={form.key(`quotas.${name}`)}
          {...form.getInputProps(`quotas.${name}`)}
          {...field}
          placeholder="No quota"
          min={1}
          allowDecimal={false}
          allowNegative={false}
          thousandSeparator=","
        />
      ))}
    </SimpleGrid>
  );
}
