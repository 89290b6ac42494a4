import { type Timestamp, timestampDate, timestampFromDate, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Radio, Stack } from "@mantine/core";
import { DateTimePicker, type DateTimePickerProps } from "@mantine/dates";
import { useId, useRef } from "react";
import { useZone } from "./time.tsx";
import { useZoned } from "./zoned.ts";

import "@mantine/dates/styles.css";

const HOUR = 3_600_000;

/** Spans of time up to now, as URLs spell them. */
export const SPANS: readonly { value: string; label: string; ms: number }[] = [
  { value: "1h", label: "The last hour", ms: HOUR },
  { value: "24h", label: "The last 24 hours", ms: 24 * HOUR },
  { value: "7d", label: "The last 7 days", ms: 7 * 24 * HOUR },
];

/** The format of what date pickers take and give: a time in the chosen zone, without the zone. */
export const PICKER_TIME = "YYYY-MM-DD HH:mm:ss";

const NAMES = {
  ariaLabels: {
    previousMonth: "Previous month",
    nextMonth: "Next month",
    previousYear: "Previous year",
    nextYear: "Next year",
    previousDecade: "Previous decade",
    nextDecade: "Next decade",
  },
  timePickerProps: { hoursInputLabel: "Hours", minutesInputLabel: "Minutes" },
  submitButtonProps: { "aria-label": "Take this time" },
} satisfies DateTimePickerProps;

/** Properties of a date picker: names of what has no text, and the return of the focus to the field. */
export function usePickerProps() {
  const id = useId();
  return {
    ...NAMES,
    // Days of other months would be too pale to read, and weekends in the dark too red.
    hideOutsideDates: true,
    weekendDays: [],
    // The calendar is named by the element with the popover's id.
    id,
    popoverProps: { id, returnFocus: true },
  };
}

const ANY = "any";
const MOMENT = "moment";

/** A start time, and the option that it was chosen by. */
export interface Since {
  option: string;
  /** Undefined for any time. */
  from?: Timestamp;
}

/** No start time. */
export const ANY_TIME: Since = { option: ANY };

/** A start time that is shown with a field to change it. */
export function sinceMoment(moment: Date): Since {
  return { option: MOMENT, from: timestampFromDate(moment) };
}

/** Properties of {@link SinceField}. */
export interface SinceFieldProps {
  label: string;
  value: Since;
  onChange: (since: Since) => void;
  /** Whether it offers "Any time". */
  orAny?: boolean;
}

/** Chooses a start time with one click: a span up to now, or a moment of the user's choice. */
export function SinceField({ label, value, onChange, orAny = false }: SinceFieldProps) {
  const picker = usePickerProps();
  const { inWords } = useZone();
  const at = useZoned();

  function choose(option: string) {
    const span = SPANS.find((each) => each.value === option);
    if (span) onChange({ option, from: timestampFromMs(Date.now() - span.ms) });
    else
      onChange(option === ANY ? ANY_TIME : sinceMoment(at().subtract(1, "day").startOf("minute").toDate()));
  }

  return (
    <Stack gap="xs">
      <Radio.Group label={label} value={value.option} onChange={choose}>
        <Stack gap="xs" mt="xs">
          {orAny && <Radio value={ANY} label="Any time" />}
          {SPANS.map((span) => (
            <Radio key={span.value} value={span.value} label={span.label} />
          ))}
          <Radio value={MOMENT} label="Since …" />
        </Stack>
      </Radio.Group>
      {value.option === MOMENT && value.from && (
        <DateTimePicker
          {...picker}
          label="Since"
          description={`In ${inWords}`}
          value={at(timestampDate(value.from)).format(PICKER_TIME)}
          onChange={(time) => time && onChange(sinceMoment(at(time).toDate()))}
          maxDate={at().format(PICKER_TIME)}
          valueFormat="D MMM YYYY, HH:mm"
          required
        />
      )}
    </Stack>
  );
}

/** Chooses one end of a period. `value` is ISO 8601, "" for none. */
export function Moment(props: { label: string; value: string; onChange: (iso: string) => void }) {
  const { label, value, onChange } = props;
  const { inWords } = useZone();
  const at = useZoned();
  const moment = at(value);
  const field = useRef<HTMLButtonElement>(null);
  const picker = usePickerProps();
  function choose(time: string | null) {
    // The clear button disappears with the focus.
    if (!time) field.current?.focus();
    onChange(time ? at(time).toISOString() : "");
  }
  return (
    <DateTimePicker
      {...picker}
      ref={field}
      label={label}
      placeholder={label === "From" ? "The beginning" : "Now"}
      description={`In ${inWords}`}
      value={value !== "" && moment.isValid() ? moment.format(PICKER_TIME) : null}
      onChange={choose}
      valueFormat="D MMM YYYY, HH:mm"
      clearable
      clearButtonProps={{ "aria-label": `Clear: ${label}` }}
    />
  );
}
