import type { Attempt, Delivery } from "../../../../../gen/webhook/v1/delivery_pb.ts";

/** The first attempt and up to three retries. */
export const ATTEMPTS_A_ROUND = 4;

/** The attempts of a round, in order. */
export interface Round {
  number: number;
  attempts: Attempt[];
}

/** Whether the receiver took it: a 2xx answer, complete in time. */
export function arrived({
  status = 0,
  error,
}: {
  status?: number | undefined;
  error?: string | undefined;
}): boolean {
  return status >= 200 && status <= 299 && error === undefined;
}

/**
 * Tells the rounds of a delivery apart. Where the current one begins is known; the others ended when the delivery
 * arrived, or with their last attempt.
 *
 * @returns oldest first; the last one has no attempts where it has only been asked for
 */
export function roundsOf(
  { roundStart }: Pick<Delivery, "roundStart">,
  attempts: readonly Attempt[],
): Round[] {
  const rounds: Round[] = [{ number: 1, attempts: [] }];
  let isOver = false;
  attempts.forEach((attempt, index) => {
    if (isOver || (index > 0 && index === roundStart))
      rounds.push({ number: rounds.length + 1, attempts: [] });
    const round = rounds.at(-1) as Round;
    round.attempts.push(attempt);
    isOver = arrived(attempt) || round.attempts.length === ATTEMPTS_A_ROUND;
  });
  if (roundStart > 0 && roundStart === attempts.length)
    rounds.push({ number: rounds.length + 1, attempts: [] });
  return rounds;
}
