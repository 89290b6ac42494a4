/** A value of CSV; null and undefined are empty. */
export type Cell = string | number | bigint | Date | null | undefined;

/** Excel takes CSV without it for the code page of Windows. */
const BYTE_ORDER_MARK = "\ufeff";

/** The first line of CSV. @param withMark whether it starts with a byte order mark */
export function csvHeader(
  columns: readonly (readonly [name: string, ...unknown[]])[],
  withMark: boolean,
): string {
  return (withMark ? BYTE_ORDER_MARK : "") + csvLine(columns.map(([name]) => name));
}

/** A line of CSV of RFC 4180, with its end. */
export function csvLine(cells: readonly Cell[]): string {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

/**
 * Spreadsheets take a text that begins so for a formula, which may send the sheet's data elsewhere. They read the full-width forms,
 * U+FF1D, U+FF0B, U+FF0D and U+FF20, as the ASCII characters. Some skip white space before them, depending on the options of the
 * import.
 */
const FORMULA = /^(?:[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])/;

function csvCell(cell: Cell): string {
  if (cell === null || cell === undefined) return "";
  if (cell instanceof Date) return cell.toISOString();
  if (typeof cell !== "string") return String(cell);
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
