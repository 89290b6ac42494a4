import type { Timestamp } from "@bufbuild/protobuf/wkt";
import {
  Checkbox,
  Group,
  Input,
  NumberInput,
  type NumberInputProps,
  Select,
  Switch,
  Text,
} from "@mantine/core";
import { useForm } from "@mantine/form";
import { useState } from "react";
import {
  type CircuitBreaker,
  CircuitBreakerState,
  type Webhook,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { periodInWords } from "../../../../src/contract/time-in-words.ts";
import { BREAKER_BOUNDS, MAX_PROBE_INTERVAL_S } from "../../../../src/contract/webhooks/circuit-breaker.ts";
import { useMay } from "../../api/session.tsx";
import { FormButton, fromOne, SaveForm } from "../../parts/dialogs.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { useLateness } from "../../parts/overdue.tsx";
import { Facts, Section } from "../../parts/page.tsx";
import { notifyDone } from "../../parts/save.ts";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { SharedNote } from "./endpoint.tsx";
import { useWebhookUpdate } from "./webhook-form.tsx";

/** The circuit breaker of a webhook: its settings and its state. */
export function BreakerSection({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const breaker = webhook.circuitBreaker;
  return (
    <Section
      title="Circuit breaker"
      description="Holds deliveries back while the endpoint fails, and sends them once it accepts one again."
      actions={
        mayWrite && (
          <FormButton title="Circuit breaker" form={(close) => <Form webhook={webhook} onClose={close} />}>
            Change…
          </FormButton>
        )
      }
    >
      {breaker ? (
        <Shown breaker={breaker} />
      ) : (
        <Dimmed>Off: every delivery gets its four attempts, however long the endpoint has failed.</Dimmed>
      )}
    </Section>
  );
}

/** What a circuit breaker with the default thresholds does. */
export const BREAKER_IN_WORDS = `A circuit breaker holds deliveries back after ${BREAKER_BOUNDS.failures.default} failed attempts in a row over ${periodInWords(BREAKER_BOUNDS.failingSeconds.default)}, so that they do not use up their attempts. One is then sent as a probe, first after ${periodInWords(BREAKER_BOUNDS.probeSeconds.default)}; the first success sends the others.`;

const STATES: Partial<Record<CircuitBreakerState, string>> = {
  [CircuitBreakerState.CLOSED]: "Closed",
  [CircuitBreakerState.OPEN]: "Open",
  [CircuitBreakerState.DISABLED]: "Webhook disabled",
};

function Shown({ breaker }: { breaker: CircuitBreaker }) {
  const { settings, state, since, failedAttempts, nextProbe } = breaker;
  if (!settings) return null;
  const { failures, failingSeconds, probeSeconds, disableSeconds, disableOnGone, resendFailed } = settings;
  return (
    <Facts
      facts={[
        [
          "State",
          <>
            {STATES[state] ?? "Unknown"}, since <Time value={since} />
          </>,
        ],
        failedAttempts > 0 && ["Failed in a row", countOf(failedAttempts, "attempt", "attempts")],
        nextProbe && ["Next probe", <NextProbe key="probe" at={nextProbe} />],
        [
          "Opens",
          `after ${countOf(failures, "failed attempt", "failed attempts")} over ${periodInWords(failingSeconds)}`,
        ],
        [
          "Probes",
          `first after ${periodInWords(probeSeconds)}, then up to ${periodInWords(MAX_PROBE_INTERVAL_S)} apart`,
        ],
        [
          "Disables the webhook",
          `after ${periodInWords(disableSeconds)} without success${disableOnGone ? ", and on 410 Gone" : ""}`,
        ],
        ["After an outage", resendFailed ? "Sends again what failed in it" : "Sends what waited"],
      ]}
    />
  );
}

function NextProbe({ at }: { at: Timestamp }) {
  return useLateness(at) >= 0 ? "under way or about to be sent" : <Time value={at} relative />;
}

type NumberName = keyof typeof BREAKER_BOUNDS;

const FIELDS: { name: NumberName; label: string; description: string }[] = [
  {
    name: "failures",
    label: "Failed attempts in a row",
    description: "The breaker opens after so many.",
  },
  {
    name: "failingSeconds",
    label: "Failing for at least",
    description: "It opens no sooner than this after the first of these failures.",
  },
  {
    name: "probeSeconds",
    label: "First probe after",
    description: `One delivery is sent as a probe. The time between probes doubles, up to ${periodInWords(MAX_PROBE_INTERVAL_S)}.`,
  },
  {
    name: "disableSeconds",
    label: "Disable without success for",
    description: "If a probe fails when no attempt has succeeded for this time, the webhook is disabled.",
  },
];

const refuseZero = fromOne("the default");

type Values = Record<NumberName, number | string> & {
  enabled: boolean;
  disableOnGone: boolean;
  resendFailed: boolean;
};

function valuesOf({ circuitBreaker }: Webhook): Values {
  const settings = circuitBreaker?.settings;
  const number = (name: NumberName) => settings?.[name] ?? BREAKER_BOUNDS[name].default;
  return {
    enabled: settings !== undefined,
    failures: number("failures"),
    failingSeconds: number("failingSeconds"),
    probeSeconds: number("probeSeconds"),
    disableSeconds: number("disableSeconds"),
    disableOnGone: settings?.disableOnGone ?? false,
    resendFailed: settings?.resendFailed ?? false,
  };
}

const WHOLE = { allowDecimal: false, allowNegative: false, thousandSeparator: "," };

/** The units of a period, in seconds, the largest first. */
const UNITS = [
  { value: "86400", label: "days" },
  { value: "3600", label: "hours" },
  { value: "60", label: "minutes" },
  { value: "1", label: "seconds" },
];

/** A period in a unit of choice; at first in the largest that is exact. `value` and `max` are in seconds; "" for no value. */
function PeriodInput(
  props: NumberInputProps & { max: number; onChange: (seconds: number | string) => void },
) {
  const { value = "", max, onChange, label, description, error, ...input } = props;
  const [chosen, setChosen] = useState<number>();
  const seconds = Number(value);
  const isExact = (unit: number) => seconds % unit === 0;
  const exact = Number(
    UNITS.find((each) => seconds >= Number(each.value) && isExact(Number(each.value)))?.value ?? 60,
  );
  const unit = chosen !== undefined && isExact(chosen) ? chosen : exact;
  return (
    <Input.Wrapper label={label} description={description} error={error}>
      <Group gap="xs" wrap="nowrap" mt={4}>
        <NumberInput
          {...input}
          {...WHOLE}
          aria-label={String(label)}
          flex={1}
          min={1}
          max={Math.floor(max / unit)}
          value={value === "" ? "" : seconds / unit}
          onChange={(n) => onChange(n === "" ? "" : Number(n) * unit)}
        />
        <Select
          aria-label={`Unit: ${label}`}
          w={130}
          allowDeselect={false}
          data={UNITS.filter((each) => Number(each.value) <= max)}
          value={String(unit)}
          onChange={(each) => {
            const next = Number(each);
            setChosen(next);
            if (value !== "") onChange(Math.min(seconds / unit, Math.floor(max / next)) * next);
          }}
        />
      </Group>
    </Input.Wrapper>
  );
}

/** Changes the settings of a webhook's circuit breaker. */
function Form({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const form = useForm<Values>({
    initialValues: valuesOf(webhook),
    // The fields are hidden while the breaker is off.
    validate: ({ enabled, ...values }) =>
      enabled ? Object.fromEntries(FIELDS.map(({ name }) => [name, refuseZero(values[name])])) : {},
  });
  const update = useWebhookUpdate(webhook, form, valuesOf, (field) => field.replace("circuitBreaker.", ""));
  const { enabled } = form.values;
  const state = update.base.circuitBreaker?.state ?? CircuitBreakerState.CLOSED;

  const submit = form.onSubmit(async (values) => {
    const numbers = Object.fromEntries(FIELDS.map(({ name }) => [name, Number(values[name] || 0)]));
    const { disableOnGone, resendFailed } = values;
    const circuitBreaker = { ...numbers, enabled, disableOnGone, resendFailed };
    if (!(await update.save({ circuitBreaker }))) return;
    notifyDone("The circuit breaker is saved");
    onClose();
  });

  return (
    <SaveForm {...update.form} onSubmit={submit} onCancel={onClose} submit="Save">
      <Switch
        label="Use a circuit breaker"
        description="While it is open, deliveries wait, and one at a time is sent as a probe. The first success sends the others, the oldest first."
        data-autofocus
        {...form.getInputProps("enabled", { type: "checkbox" })}
      />
      {enabled &&
        FIELDS.map(({ name, ...texts }) => {
          const props = { ...texts, ...BREAKER_BOUNDS[name], ...form.getInputProps(name) };
          return name === "failures" ? (
            <NumberInput key={name} {...props} {...WHOLE} />
          ) : (
            <PeriodInput key={name} {...props} />
          );
        })}
      {enabled && (
        <>
          <Checkbox
            label="Disable on 410 Gone"
            description="An endpoint that answers 410 gets no more deliveries until you enable the webhook."
            {...form.getInputProps("disableOnGone", { type: "checkbox" })}
          />
          <Checkbox
            label="Send failed deliveries again"
            description="After an outage in which the breaker has opened, deliveries that failed in it are sent again."
            {...form.getInputProps("resendFailed", { type: "checkbox" })}
          />
        </>
      )}
      {!enabled && state !== CircuitBreakerState.CLOSED && (
        <Text size="sm">What the breaker holds back is sent at once.</Text>
      )}
      <SharedNote webhook={webhook} />
    </SaveForm>
  );
}
