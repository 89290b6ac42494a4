import { Grid, Select } from "@mantine/core";
import { DateTimePicker } from "@mantine/dates";
import dayjs from "dayjs";
import { type FilterBarProps, SPANS } from "./filters.ts";

const ANY = "any";
const BETWEEN = "between";
const CHOICES = [
  { value: ANY, label: "Any time" },
  ...SPANS.map(({ value, label }) => ({ value, label })),
  { value: BETWEEN, label: "From … to …" },
];
/** What the pickers take and give: the viewer's time without a zone. */
const LOCAL = "YYYY-MM-DD HH:mm:ss";

/** When the deliveries were created: a span up to now, or between two moments. */
export function TimeFilter({ filters, onChange }: FilterBarProps) {
  const { last, from, to } = filters;
  const chosen = SPANS.some(({ value }) => value === last) ? last : from || to ? BETWEEN : ANY;

  function choose(value: string | null) {
    if (value === BETWEEN)
      onChange({ last: "", from: dayjs().subtract(1, "day").startOf("day").toISOString() });
    else onChange({ last: value === ANY ? "" : (value ?? ""), from: "", to: "" });
  }

  return (
    <>
      <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
        <Select label="Created" data={CHOICES} value={chosen} onChange={choose} allowDeselect={false} />
      </Grid.Col>
      {chosen === BETWEEN && (
        <>
          <Moment label="From" value={from} onChange={(moment) => onChange({ from: moment })} />
          <Moment label="To" value={to} onChange={(moment) => onChange({ to: moment })} />
        </>
      )}
    </>
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
  return (
    <Grid.Col span={{ base: 12, sm: 6 }}>
      <DateTimePicker
        label={label}
        placeholder={label === "From" ? "The beginning" : "Now"}
        description="In your time zone"
        value={value !== "" && moment.isValid() ? moment.format(LOCAL) : null}
        onChange={(local) => onChange(local ? dayjs(local).toISOString() : "")}
        valueFormat="D MMM YYYY, HH:mm"
        clearable
        clearButtonProps={{ "aria-label": `Clear: ${label}` }}
      />
    </Grid.Col>
  );
}
