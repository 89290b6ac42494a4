import { SegmentedControl } from "@mantine/core";

/** The periods of charts, as addresses and requests spell them. */
export const PERIODS = [
  { hours: 1, value: "1h", label: "1 hour", inWords: "in the last hour" },
  { hours: 24, value: "24h", label: "24 hours", inWords: "in the last 24 hours" },
  { hours: 168, value: "7d", label: "7 days", inWords: "in the last 7 days" },
] as const;

/** A period of charts. */
export type Period = (typeof PERIODS)[number];

/** The period that an address names; 24 hours if it names none. */
export function periodOf(value: string): Period {
  return PERIODS.find((each) => each.value === value) ?? PERIODS[1];
}

/** The chosen period, and what changes it. */
export interface PeriodSelectProps {
  period: Period;
  onChange: (period: Period) => void;
}

/** Chooses the period of charts. */
export function PeriodSelect({ period, onChange }: PeriodSelectProps) {
  return (
    <SegmentedControl
      size="xs"
      aria-label="Period"
      data={PERIODS.map(({ value, label }) => ({ value, label }))}
      value={period.value}
      onChange={(value) => onChange(periodOf(value))}
    />
  );
}
