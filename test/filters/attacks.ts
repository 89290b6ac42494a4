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

const doubled = (list: string, times = 40) => `[${list}]${".map(a, a + a)".repeat(times)}[0]`;
/** Of four million characters. */
const LONG = `[event.order_number]${".map(a, a + a)".repeat(4)}[0]`;
const EIGHT = Array(8).fill("event.order_number").join(", ");

/**
 * Filters of at most 1,000 characters that would make huge lists, texts or bytes, for an order with an order number of 250,000 times
 * the letter "a". None of them has a result.
 */
export const HUNGRY_FILTERS: Record<string, string> = {
  "a long range": "lists.range(1000000000).size() > 1",
  "ranges of ranges": "lists.range(100000).map(a, lists.range(100000)).size() > 1",
  "ranges that are flattened":
    "cel.bind(r, lists.range(100000), r.map(a, r.map(b, r))).flatten(2).size() > 1",
  "a doubled list that is sorted": `${doubled("[1, 2]")}.sort().size() > 1`,
  "a doubled list that is flattened": `[${doubled("[1, 2]")}].flatten().size() > 1`,
  "a doubled list in a set": `sets.contains(${doubled("[1, 2]")}, [3])`,
  "a doubled list that is compared": `${doubled("[1]", 30)} == ${doubled("[1]", 30)}`,
  "a doubled list that is joined": `${doubled('["a"]')}.join("x") == ""`,
  "a doubled list in a text": `"%s".format([${doubled("[1, 2]")}]) == ""`,
  "doubled bytes": `${doubled("b'xxxxxxxx'")} == b''`,
  "a doubled text": `${doubled("event.order_number")}.matches("b")`,
  "a text in the place of each of its characters":
    'event.order_number.replace("a", event.order_number) == ""',
  "a text between all of its characters": 'event.order_number.replace("", event.order_number) == ""',
  "a text as a separator of itself": `[${EIGHT}, ${EIGHT}].join(event.order_number) == ""`,
  "the characters of a text": 'event.order_number.split("").size() > 1',
  "a text that is quoted again and again": `["\\"\\""]${".map(a, strings.quote(a))".repeat(30)}[0] == ""`,
  "a text in a text a hundred times": `cel.bind(a, ${LONG}, "${"%s".repeat(100)}".format([${"a, ".repeat(99)}a]).contains("b"))`,
  "a text in a list in a text": `cel.bind(a, ${LONG}, "%s".format([lists.range(100).map(x, a)]).matches("b"))`,
  "long texts in a list": `cel.bind(a, ${LONG}, lists.range(1000).map(x, a.reverse()).size() > 1)`,
  "long bytes in a list": `cel.bind(a, ${LONG}, lists.range(1000).map(x, bytes(a)).size() > 1)`,
  "a loop with two variables": "lists.range(100000).transformMap(i, v, lists.range(100000)).size() > 1",
  "a sort in a sort": "lists.range(100000).sortBy(a, lists.range(100000).sortBy(b, -b)[0]).size() > 1",
  "distinct lists": "lists.range(100000).map(a, [a]).distinct().size() > 1",
};
