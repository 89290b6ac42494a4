import statuses from "statuses";
import type { Attempt } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { arrived } from "./rounds.ts";

/** What came of an attempt, in words: `503 Service Unavailable`. */
export function resultInWords(attempt: Pick<Attempt, "status" | "error">): string {
  const { status, error } = attempt;
  if (status === undefined) return sentence(error ?? "no answer");
  const answer = `${status} ${statuses.message[status] ?? ""}`.trim();
  if (error !== undefined) return `${answer}, then: ${error}`;
  if (!arrived(attempt) && status >= 300 && status <= 399) return `${answer}: redirects are not followed`;
  return answer;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
