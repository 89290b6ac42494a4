import { SegmentedControl } from "@mantine/core";
import { PERIODS, type Period, periodOf } from "./periods.ts";

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
