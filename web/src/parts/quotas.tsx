import { NumberInput, SimpleGrid, Text } from "@mantine/core";
import { type UseFormReturnType, useForm } from "@mantine/form";
import { useState } from "react";
import { fromOne, SaveForm } from "./dialogs.tsx";
import { notifyDone, useSave } from "./save.ts";
import { countOf } from "./text/words.ts";

/** Every quota; 0 means none. */
const QUOTAS = {
  webhooks: {
    label: "Webhooks",
    description: "The most that may exist.",
    max: 1_000_000,
    inWords: (most: number) => countOf(most, "webhook", "webhooks"),
  },
  eventsPerSecond: {
    label: "Events per second",
    description: "The most that may be published.",
    max: 100_000,
    inWords: (most: number) => `${countOf(most, "event", "events")}/s`,
  },
  pendingDeliveries: {
    label: "Pending deliveries",
    description: "The most that may wait. The newest beyond it fail.",
    max: 1_000_000_000,
    inWords: (most: number) => countOf(most, "pending delivery", "pending deliveries"),
  },
} as const;

type QuotaName = keyof typeof QUOTAS;

/** The quotas of an API key or of a customer. */
export type Quotas = Partial<Record<QuotaName, number>>;

/** The part of a form's values with quotas; "" for none. */
export type QuotaValues = Partial<Record<QuotaName, number | string>>;

const mapped = <T,>(values: Partial<Record<QuotaName, unknown>>, of: (value: unknown) => T) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, of(value)]));

/** The form's values of some quotas. */
export function quotaValues(names: readonly QuotaName[], quotas: Quotas | undefined): QuotaValues {
  return Object.fromEntries(names.map((name) => [name, quotas?.[name] || ""]));
}

/** The request's quotas for a form's values. */
export const quotasOf = (values: QuotaValues): Quotas => mapped(values, (value) => Number(value || 0));

/** The validation of quotas in a form. */
export const quotaRules = (names: readonly QuotaName[]) =>
  Object.fromEntries(names.map((name) => [name, fromOne("no quota")]));

/** `20 webhooks, 50 events/s`; "" without quotas. */
export function quotasInWords(quotas: Quotas | undefined): string {
  const names = Object.keys(QUOTAS) as QuotaName[];
  return names.flatMap((name) => (quotas?.[name] ? [QUOTAS[name].inWords(quotas[name])] : [])).join(", ");
}

/** Fields of the quotas that a form has. */
export function QuotaFields({
  form,
}: {
  form: Pick<UseFormReturnType<{ quotas: QuotaValues }>, "getInputProps" | "values">;
}) {
  return (
    <SimpleGrid cols={{ base: 1, xs: 2 }}>
      {(Object.keys(form.values.quotas) as QuotaName[]).map((name) => {
        const { label, description, max } = QUOTAS[name];
        return (
          <NumberInput
            key={name}
            {...form.getInputProps(`quotas.${name}`)}
            label={label}
            description={description}
            max={max}
            placeholder="No quota"
            min={1}
            allowDecimal={false}
            allowNegative={false}
            thousandSeparator=","
          />
        );
      })}
    </SimpleGrid>
  );
}

/** Quotas to change. */
export interface QuotasFormProps {
  /** What they belong to: "key". */
  noun: string;
  /** Its name. */
  name: string;
  names: readonly QuotaName[];
  quotas: Quotas | undefined;
  /** Reads them as they are by now. */
  read: () => Promise<Quotas | undefined>;
  save: (quotas: Quotas) => Promise<unknown>;
  onClose: () => void;
}

/** The form of the quotas of an API key or of a customer. Nothing is saved if somebody else has changed them meanwhile. */
export function QuotasForm({ noun, name, names, quotas, read, save, onClose }: QuotasFormProps) {
  // The quotas that the fields were filled with.
  const [base, setBase] = useState(() => quotaValues(names, quotas));
  // The current quotas, if somebody has changed them since.
  const [changed, setChanged] = useState<QuotaValues>();
  const form = useForm({ initialValues: { quotas: base }, validate: { quotas: quotaRules(names) } });
  const saving = useSave(form);

  const submit = form.onSubmit((values) =>
    saving.save(async () => {
      // The service replaces the quotas, whatever they are by now.
      const now = quotaValues(names, await read());
      if (names.some((each) => now[each] !== base[each])) return setChanged(now);
      await save(quotasOf(values.quotas));
      notifyDone(`The quotas of “${name}” are saved`);
      onClose();
    }),
  );

  function takeCurrent(current: QuotaValues) {
    setBase(current);
    form.setValues({ quotas: current });
    setChanged(undefined);
  }

  return (
    <SaveForm
      saving={saving}
      onSubmit={submit}
      onCancel={onClose}
      submit="Save quotas"
      failed="The quotas were not saved"
      changed={changed && { what: noun, onReload: () => takeCurrent(changed) }}
    >
      <Text size="sm">
        Requests beyond a quota are refused. Webhooks that exist already stay. Leave a field empty for no
        quota.
      </Text>
      <QuotaFields form={form} />
    </SaveForm>
  );
}
