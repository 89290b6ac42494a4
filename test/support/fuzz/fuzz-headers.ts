import fc from "fast-check";

type Headers = Record<string, string>;

const often = <T>(usual: fc.Arbitrary<T>, other: fc.Arbitrary<T>, weight = 12) =>
  fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: other });

/** Text that a header can hold over any version of HTTP. */
const headerText = fc
  .array(fc.oneof(fc.integer({ min: 0x20, max: 0x7e }), fc.integer({ min: 0xa0, max: 0xff })), {
    maxLength: 40,
  })
  .map((codes) => String.fromCharCode(...codes).trim());

const token = "A".repeat(43);

/** Headers that are seldom sent, each with values that are seldom right. */
const SELDOM: Record<string, fc.Arbitrary<string>> = {
  host: fc.constantFrom(
    "",
    "a b",
    "[::1",
    "[::1]",
    "user@host",
    "localhost:99999",
    "%zz",
    "..",
    "-",
    "a/b",
    "ä",
    "xn--a",
    "1.1",
    "x".repeat(300),
  ),
  "connect-timeout-ms": timeouts("", "ms"),
  "grpc-timeout": timeouts("m", "S", "H", "M", "u", "n", "X"),
  "connect-protocol-version": fc.constantFrom("1", "2", "", "v1"),
  "accept-encoding": encodings(),
  "grpc-accept-encoding": encodings(),
  "connect-accept-encoding": encodings(),
  "x-forwarded-for": fc.oneof(
    fc.constantFrom(
      "1.2.3.4",
      "::1",
      "1.2.3.4, 5.6.7.8",
      "",
      ",",
      "a",
      "1.2.3.4:80",
      "[::1]:1",
      "fe80::1%eth0",
      "::ffff:1.2.3.4",
      "0x7f.1",
      "unknown",
      "1,".repeat(500),
    ),
    headerText,
  ),
  "x-forwarded-proto": fc.constantFrom("https", "http", "", "a"),
  "x-caller-address": headerText,
  cookie: fc.oneof(
    fc.constantFrom(
      `webhook_session=${token}`,
      `__Host-webhook_session=${token}`,
      "a=b; c",
      ";;",
      "=",
      "webhook_session=",
    ),
    headerText,
  ),
  "x-settings-page": fc.constantFrom("1", ""),
  origin: fc.constantFrom("null", "http://localhost", "https://a.example", "a", ""),
  "sec-fetch-site": fc.constantFrom("same-origin", "cross-site", "none", ""),
  accept: fc.constantFrom("*/*", "text/html", "application/json;q=0", ""),
  "if-none-match": fc.constantFrom("*", '""', "a"),
  range: fc.constantFrom("bytes=0-1", "bytes=-1", "a"),
  expect: fc.constantFrom("100-continue", "a"),
  "x-http-method-override": fc.constantFrom("DELETE", "GET"),
  "grpc-status": fc.constantFrom("13", "0", "a"),
  "grpc-message": fc.constantFrom("%", "%zz", "%ed%a0%80"),
  "grpc-status-details-bin": fc.constantFrom("!", "AAAA", ""),
  "grpc-encoding": encodings(),
  "connect-content-encoding": encodings(),
  "x-any-bin": fc.constantFrom("!", "AAAA", "A", ""),
  "x-any": fc.oneof(headerText, fc.constant("x".repeat(6_000))),
  traceparent: headerText,
};

function timeouts(...units: string[]): fc.Arbitrary<string> {
  const amounts = [
    "0",
    "1",
    "5",
    "50",
    "2000",
    "99999999",
    "2147483648",
    "99999999999999999999",
    "-1",
    "1.5",
    "1e3",
    "",
    " 5",
    "0x10",
    "NaN",
  ];
  return fc.tuple(fc.constantFrom(...amounts), fc.constantFrom(...units)).map((parts) => parts.join(""));
}

function encodings(): fc.Arbitrary<string> {
  return fc.constantFrom(
    "gzip",
    "br",
    "gzip, br",
    "identity",
    "*",
    "gzip;q=0",
    "deflate",
    "zstd",
    "",
    "GZIP",
    ",",
    "__proto__",
  );
}

/** One to four headers that are seldom sent, or none. */
export const seldomHeaders: fc.Arbitrary<Headers> = often(
  fc.constant<Headers>({}),
  fc
    .uniqueArray(
      fc
        .constantFrom(...Object.keys(SELDOM))
        .chain((name) =>
          (SELDOM[name] as fc.Arbitrary<string>).map((value): [string, string] => [name, value]),
        ),
      { minLength: 1, maxLength: 4, selector: ([name]) => name },
    )
    .map((list): Headers => Object.fromEntries(list)),
  1,
);

/**
 * The header with the key; most often that of the first key.
 *
 * @param keys secrets of keys, with different permissions
 */
export function keyHeader(keys: readonly string[]): fc.Arbitrary<Headers> {
  const odd = fc.oneof(fc.constantFrom("", "nobody", "a, b", "whk_", "x".repeat(3_000)), headerText);
  return fc.oneof(
    { weight: 20, arbitrary: fc.constant<Headers>({ "x-service-key": keys[0] as string }) },
    { weight: 4, arbitrary: fc.constantFrom(...keys).map((key): Headers => ({ "x-service-key": key })) },
    { weight: 2, arbitrary: fc.constant<Headers>({}) },
    { weight: 1, arbitrary: odd.map((key): Headers => ({ "x-service-key": key })) },
  );
}

/** Names of headers that carry a deadline of the caller's. */
export const DEADLINE_HEADERS = ["connect-timeout-ms", "grpc-timeout"];

/** Content types that a request may name besides the right one; undefined: none. */
export const otherContentType: fc.Arbitrary<string | undefined> = fc.constantFrom(
  undefined,
  "",
  "application/json",
  "application/json; charset=utf-8",
  "application/json; charset=utf-16",
  "APPLICATION/JSON",
  "application/proto",
  "application/connect+json",
  "application/connect+proto",
  "application/connect+",
  "application/grpc",
  "application/grpc+json",
  "application/grpc+proto",
  "application/grpc+thrift",
  "application/grpc;a=b",
  "application/grpc-web",
  "application/grpc-web+json",
  "application/grpc-web-text",
  "application/grpc-web-text+proto",
  "application/grpcx",
  "application/x-www-form-urlencoded",
  "multipart/form-data; boundary=a",
  "text/plain",
  "a",
  ";",
  "application/json, application/proto",
);
