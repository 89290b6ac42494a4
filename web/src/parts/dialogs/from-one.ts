/**
 * The validation of a field for a number of which 0 means no limit to the service: refuses 0, and accepts an empty field. The field
 * itself corrects 0 only when it loses the focus, not on Enter.
 *
 * @param what the name of the limit in the error: `quota`, `limit`
 */
export const fromOne = (what: string) => (value: number | string) =>
  value !== "" && Number(value) < 1 ? `From 1. Leave it empty for no ${what}.` : null;
