import fc from "fast-check";
import { seldom } from "./generators.ts";

type Headers = Record<string, string>;

/** Text that a header can hold over any version of HTTP. */
const headerText = fc
  .array(fc.oneof(fc.integer({ min: 0x20, max: 0x7e }), fc.integer({ min: 0xa0, max: 0xff })), {
    maxLength: 40,
  })
  .map((codes) => String.fromCharCode(...codes).trim());

/** Values by a list in one text, between bars. */
const oneOf = (list: string) => fc.constantFrom(...list.split("|"));
const timeouts = (units: string) =>
  fc
    .tuple(
      oneOf("0|1|5|50|2000|99999999|2147483648|99999999999999999999|-1|1.5|1e3|| 5|0x10|NaN"),
      oneOf(units),
    )
    .map((parts) => parts.join(""));
const encodings = oneOf("gzip|br|gzip, br|identity|*|gzip;q=0|deflate|zstd||GZIP|,|__proto__");
const token = "A".repeat(43);
const binary = oneOf("!|AAAA|A|");

/** Headers that are seldom sent, each with values that are seldom right. */
const SELDOM: Record<string, fc.Arbitrary<string>> = {
  host: oneOf(`|a b|[::1|[::1]|user@host|localhost:99999|%zz|..|-|a/b|ä|xn--a|1.1|${"x".repeat(300)}`),
  "connect-timeout-ms": timeouts("|ms"),
  "grpc-timeout": timeouts("m|S|H|M|u|n|X"),
  "connect-protocol-version": oneOf("1|2||v1"),
  "accept-encoding": encodings,
  "grpc-accept-encoding": encodings,
  "connect-accept-encoding": encodings,
  "grpc-encoding": encodings,
  "connect-content-encoding": encodings,
  "x-forwarded-for": oneOf(
    `1.2.3.4|::1|1.2.3.4, 5.6.7.8||,|a|1.2.3.4:80|[::1]:1|fe80::1%eth0|::ffff:1.2.3.4|unknown|${"1,".repeat(500)}`,
  ),
  "x-forwarded-proto": oneOf("https|http||a"),
  "x-forwarded-host": oneOf("localhost|a:1, b||a b|[::1|user@host|%zz"),
  "x-forwarded-port": oneOf("443|99999999||a"),
  "x-forwarded-prefix": oneOf('/webhooks|/api|/a, /b/|//a|/..|"><script>||a|/webhook.v1.EventService'),
  "x-caller-address": headerText,
  cookie: oneOf(`webhook_session=${token}|__Host-webhook_session=${token}|a=b; c|;;|=|webhook_session=`),
  "x-settings-page": oneOf("1|"),
  origin: oneOf("null|http://localhost|https://a.example|a|"),
  "sec-fetch-site": oneOf("same-origin|cross-site|none|"),
  accept: oneOf("*/*|text/html|application/json;q=0|"),
  "if-none-match": oneOf('*|""|a'),
  range: oneOf("bytes=0-1|bytes=-1|a"),
  expect: oneOf("100-continue|a"),
  "x-http-method-override": oneOf("DELETE|GET"),
  "grpc-status": oneOf("13|0|a"),
  "grpc-message": oneOf("%|%zz|%ed%a0%80"),
  "grpc-status-details-bin": binary,
  "x-any-bin": binary,
  "x-any": oneOf(`|${"x".repeat(6_000)}`),
  traceparent: headerText,
};

/** One to four headers that are seldom sent, or none. */
export const seldomHeaders: fc.Arbitrary<Headers> = seldom(
  fc.constant<Headers>({}),
  fc
    .subarray(Object.keys(SELDOM), { minLength: 1, maxLength: 4 })
    .chain((names) =>
      fc.record(
        Object.fromEntries(
          names.map((name) => [name, seldom(SELDOM[name] as fc.Arbitrary<string>, headerText)]),
        ),
      ),
    ),
  1,
);

/**
 * The header with the key; most often that of the first key.
 *
 * @param keys secrets of keys, with different permissions
 */
export function keyHeader(keys: readonly string[]): fc.Arbitrary<Headers> {
  const odd = fc.oneof(oneOf(`|nobody|a, b|whk_|${"x".repeat(3_000)}`), headerText);
  const usual = seldom(fc.constant(keys[0]), fc.constantFrom(undefined, ...keys), 4);
  const key = seldom(usual, odd, 25);
  return key.map((secret): Headers => (secret === undefined ? {} : { "x-service-key": secret }));
}

/** Names of headers that carry a deadline of the caller's. */
export const DEADLINE_HEADERS = ["connect-timeout-ms", "grpc-timeout"];

/** Methods of HTTP that most paths do not take. */
export const otherMethod = oneOf("GET|HEAD|PUT|PATCH|DELETE|OPTIONS|TRACE|PROPFIND");

/** Content types that a request may name besides the right one; undefined: none. */
export const otherContentType: fc.Arbitrary<string | undefined> = fc.option(
  fc.oneof(
    oneOf(
      "|a|;|text/plain|APPLICATION/JSON|application/x-www-form-urlencoded|multipart/form-data; boundary=a",
    ),
    fc
      .tuple(
        oneOf("json|proto|connect+json|connect+proto|connect+|grpc|grpcx|grpc-web|grpc-web-text"),
        oneOf("|; charset=utf-8|; charset=utf-16|+json|+proto|+thrift|;a=b|, application/proto"),
      )
      .map((parts) => `application/${parts.join("")}`),
  ),
  { nil: undefined },
);
