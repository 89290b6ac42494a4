const DIGITS = `'${"1".repeat(700)}'`;
const EIGHT_TIMES = Array(8).fill("int(a) == 1").join(" || ");

/** Filters of at most 1,000 characters that are accepted for orders, and take long to evaluate for every order. */
export const SLOW_FILTERS: Record<string, string> = {
  "chained maps that triple a text, read as a number": `[${DIGITS}]${".map(a, a + a + a)".repeat(7)}.exists(a, ${EIGHT_TIMES})`,
  "chained maps that double a text": `[${DIGITS}]${".map(a, a + a)".repeat(11)}.exists(a, ${EIGHT_TIMES})`,
  "chained maps that quadruple a text": `[${DIGITS}]${".map(a, a + a + a + a)".repeat(6)}.exists(a, ${EIGHT_TIMES})`,
  "loops in loops":
    "[1,2,3,4,5,6,7,8,9,0].map(a, [a]).all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, [1,2,3,4,5,6,7,8,9,0].all(f, [1,2,3,4,5,6,7,8,9,0].all(g, a == a && b == b)))))))",
  "a long list": `[1,2,3,4,5,6,7,8,9,0]${".map(a, [a, a, a, a])".repeat(2)}.map(a, [1,2,3,4,5,6,7,8,9,0].map(b, [1,2,3,4,5,6,7,8,9,0].map(c, [1,2,3,4,5,6,7,8,9,0].map(d, [1,2,3,4,5,6,7,8,9,0].map(e, [a, b, c, d, e]))))) == []`,
};

/** The slowest of them, of 892 characters. */
export const [SLOWEST_FILTER = ""] = Object.values(SLOW_FILTERS);
