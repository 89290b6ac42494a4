import { MAX_RETRY_AFTER_MS, type Wish } from "./outcome.ts";

/** The headers of a response, with names in lower case. */
type Fields = Record<string, string | string[] | undefined>;

/**
 * Reads what a response says about how many requests its receiver takes: 429, 503 with Retry-After, and the headers RateLimit and
 * RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers), also in their earlier forms.
 *
 * @param retryAfterMs the response's Retry-After
 * @returns undefined if it says nothing
 */
export function wishOf(status: number, fields: Fields, retryAfterMs: number | null): Wish | undefined {
  const isRefusal = status === 429 || (status === 503 && retryAfterMs !== null);
  // Nearly all responses say nothing.
  if (!isRefusal && fields.ratelimit === undefined && fields["ratelimit-remaining"] === undefined)
    return undefined;
  const { remaining, resetMs } = readQuota(fields);
  if (!isRefusal && remaining === null) return undefined;
  const usedUpMs = remaining === 0 ? Math.min(resetMs, MAX_RETRY_AFTER_MS) : 0;
  return {
    holdMs: (isRefusal ? retryAfterMs : null) ?? usedUpMs,
    isRefusal,
    statedRate: readPolicy(fields),
    remaining,
  };
}

/** Reads the smallest remaining quota, and the time until all used-up quotas are renewed, in milliseconds. */
function readQuota(fields: Fields): { remaining: number | null; resetMs: number } {
  const listed = membersOf(fields.ratelimit);
  // Earlier forms have a list member or a header for each of these values.
  const {
    remaining: r = numberOf(fields["ratelimit-remaining"]),
    reset: t = numberOf(fields["ratelimit-reset"]),
  } = Object.assign({}, ...listed) as Parameters;
  const quotas = [...listed, { r, t }].filter((quota) => quota.r !== undefined);
  const resets = quotas.filter((quota) => quota.r === 0).map((quota) => quota.t ?? 0);
  return {
    remaining: quotas.length === 0 ? null : Math.min(...quotas.map((quota) => quota.r as number)),
    resetMs: 1_000 * Math.max(0, ...resets),
  };
}

/** Reads the lowest rate of the policies, in requests per second; null if there is none. */
function readPolicy(fields: Fields): number | null {
  const rates = membersOf(fields["ratelimit-policy"] ?? fields["ratelimit-limit"]).flatMap(
    ({ q, first = q, w, qu }) => (first && w && qu === undefined ? [first / w] : []),
  );
  return rates.length === 0 ? null : Math.min(...rates);
}

/** The numbers of a member of a list. `first`: the member itself, if it is a number. `qu`: NaN if the quota counts no requests. */
type Parameters = Record<string, number | undefined>;

function membersOf(field: string | string[] | undefined): Parameters[] {
  if (field === undefined) return [];
  const text = [field].flat().join();
  const withoutTexts = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, (quoted) =>
    quoted === '"requests"' ? "" : "?",
  );
  return withoutTexts.split(",").map((member) => {
    const first = numberOf(member);
    const named = [...member.matchAll(/([a-z]+) ?= ?(\?|\d+)/g)].map(([, name, value]) => [
      name,
      Number(value),
    ]);
    return { ...(first === undefined ? {} : { first }), ...Object.fromEntries(named) };
  });
}

/** The whole number with which a field begins. */
function numberOf(field: string | string[] | undefined): number | undefined {
  const [digits] = /^\s*\d+/.exec(String(field)) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
