import { Group, Select } from "@mantine/core";
import { DateTimePicker } from "@mantine/dates";
import dayjs from "dayjs";
import { useRef } from "react";
import { PICKER_TIME, usePickerProps } from "../../../parts/time/picker-time.ts";
import { SPANS } from "../../../parts/time/spans.ts";
import type { FilterBarProps } from "./filters.ts";

const ANY = "any";
/** Also the value of `last` while both moments are empty: without it, the fields would disappear. */
const BETWEEN = "between";
const CHOICES = [
  { value: ANY, label: "Any time" },
  ...SPANS.map(({ value, label }) => ({ value, label })),
  { value: BETWEEN, label: "From … to …" },
];
function chosenOf({ last, from, to }: FilterBarProps["filters"]): string {
  if (SPANS.some(({ value }) => value === last)) return last;
  return last === BETWEEN || from || to ? BETWEEN : ANY;
}

/** The filter by time of creation: a span up to now, or between two moments. */
export function TimeFilter({ filters, onChange }: FilterBarProps) {
  function choose(value: string | null) {
    if (value === BETWEEN)
      onChange({ last: "", from: dayjs().subtract(1, "day").startOf("day").toISOString() });
    else onChange({ last: value === ANY ? "" : (value ?? ""), from: "", to: "" });
  }

  return (
    <Select
      aria-label="Created"
      data={CHOICES}
      value={chosenOf(filters)}
      onChange={choose}
      allowDeselect={false}
    />
  );
}

/** The moments between which the deliveries were created, if that is chosen. */
export function Moments({ filters, onChange }: FilterBarProps) {
  if (chosenOf(filters) !== BETWEEN) return null;
  function change(moments: { from?: string; to?: string }) {
    const { from, to } = { ...filters, ...moments };
    onChange({ ...moments, last: from || to ? "" : BETWEEN });
  }
  return (
    <Group gap="xs" grow>
      <Moment label="From" value={filters.from} onChange={(from) => change({ from })} />
      <Moment label="To" value={filters.to} onChange={(to) => change({ to })} />
    </Group>
  );
}

function Moment({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (iso: string) => void;
}) {
  const moment = dayjs(value);
  const field = useRef<HTMLButtonElement>(null);
  const picker = usePickerProps();
  function choose(local: string | null) {
    // The clear button disappears with the focus.
    if (!local) field.current?.focus();
    onChange(local ? dayjs(local).toISOString() : "");
  }
  return (
    <DateTimePicker
      {...picker}
      ref={field}
      label={label}
      placeholder={label === "From" ? "The beginning" : "Now"}
      description="In your time zone"
      value={value !== "" && moment.isValid() ? moment.format(PICKER_TIME) : null}
      onChange={choose}
      valueFormat="D MMM YYYY, HH:mm"
      clearable
      clearButtonProps={{ "aria-label": `Clear: ${label}` }}
    />
  );
}
