import type { DateTimePickerProps } from "@mantine/dates";
import { useId } from "react";

/** The format of what date pickers take and give: the viewer's time without a zone. */
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
