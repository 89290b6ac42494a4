import type { RunTotals } from "./dispatch-input.ts";

const number = new Intl.NumberFormat("en-US");

/** `4 attempts: 0 delivered, 1 failed, 3 to retry`. The counts after the colon add up to the attempts. */
export function countsInWords(
  { sent, delivered, failed }: RunTotals,
  retried: "to retry" | "retried" = "to retry",
): string {
  const others = sent - delivered - failed;
  const attempts = `${number.format(sent)} ${sent === 1 ? "attempt" : "attempts"}`;
  if (sent === 0) return attempts;
  const parts = [`${number.format(delivered)} delivered`];
  if (failed > 0 || others > 0) parts.push(`${number.format(failed)} failed`);
  if (others > 0) parts.push(`${number.format(others)} ${retried}`);
  return `${attempts}: ${parts.join(", ")}`;
}
