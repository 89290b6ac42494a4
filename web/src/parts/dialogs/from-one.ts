/**
 * The validation of a field for a number of which 0 means the same to the service as an empty field: refuses 0, and accepts an empty
 * field. The field itself corrects 0 only when it loses the focus, not on Enter.
 *
 * @param meaning of an empty field, in the error: `no quota`, `no limit`, `the default`
 */
export const fromOne = (meaning: string) => (value: number | string) =>
  value !== "" && Number(value) < 1 ? `From 1. Leave it empty for ${meaning}.` : null;
