import { describe, expect, test } from "vitest";
import {
  bearerTokenError,
  clientIdError,
  deliveryHeaders,
  headerNameError,
  headerValueError,
  MAX_HEADER_VALUE,
  userNameError,
} from "../../src/contract/delivery-headers.ts";

/** One more byte than allowed. */
const LONG = "x".repeat(MAX_HEADER_VALUE + 1);
const CONTROLS = ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\u001b[0m", "a\u007f", "a\u0085b"];
const NO_TEXT = [...CONTROLS, "\ud800", LONG, "ü".repeat(MAX_HEADER_VALUE / 2 + 1)];
const TEXTS = [
  ...["5|abcDEF", "user:tok", "s-e_c.r~t", "3f2a-11_a", "a b", "a\tb", '"quoted", \\', "%41+&=", "AAAA/+=="],
  ...["pässword", "パスワード", "👩‍💻", "eyJ.".repeat(4_096), LONG.slice(1)],
];

describe.each<
  [what: string, error: (text: string) => string | undefined, taken: string[], refused: string[]]
>([
  [
    "a custom header's name",
    headerNameError,
    [
      ...["X-Tenant", "x", "Ocp-Apim-Subscription-Key"],
      ...["Authorization", "Accept", "Cookie", "WebHook-Request-Origin", "Webhook-Tenant", "X-Webhook-Id"],
    ],
    [
      ...["client_id", "X_API_KEY", "api.key", "__proto__", "x!y"],
      ...["", " ", "a b", "a:b", "ä", "x\r\ny", "(x)", "a/b", "a,b", "a=b", '"a"', "X".repeat(101)],
      // HTTP or the service sets these, and CGI servers read the others as them.
      ...[
        "Host",
        "content-type",
        "CONTENT-LENGTH",
        "Content_Length",
        "Transfer.Encoding",
        "User-Agent",
        "TE",
      ],
      ...["webhook-signature", "Webhook_Id", "X-Service-UserId", "x_service_userid", "x.service!userid"],
      ...["Proxy-Authorization", "proxy_connection", "traceparent", "Expect", "Connection"],
    ],
  ],
  ["a custom header's value", headerValueError, ["", " a ", ...TEXTS], NO_TEXT],
  ["a bearer token", bearerTokenError, [...TEXTS, "Token a=b"], ["", " ", ...NO_TEXT]],
  [
    "a user name of Basic authentication",
    userNameError,
    ["", ...TEXTS.filter((text) => !text.includes(":"))],
    [...["a:b", ":"], ...NO_TEXT],
  ],
  ["a client id", clientIdError, ["https://app.example/", ...TEXTS], ["", ...NO_TEXT]],
])("%s", (_what, error, taken, refused) => {
  test.each(taken.map((text) => [text.slice(0, 30), text]))("may be %j", (_, text) => {
    expect(error(text)).toBeUndefined();
  });

  test.each(refused.map((text) => [text.slice(0, 30), text]))(
    "cannot be %j, and the error says what is allowed",
    (_, text) => {
      expect(error(text)).toMatch(/^(must|is) /);
    },
  );
});

test("requests accept any type of response, unless a custom header says which", () => {
  const facts = { id: "1", process: 1, installedAppId: null, userId: "u" };
  const accepts = (custom: string[]) => {
    const headers = [...deliveryHeaders(facts, custom), ...custom];
    return headers.filter((_, at) => at % 2 === 1 && /^accept$/i.test(headers[at - 1] ?? ""));
  };
  expect(accepts([])).toEqual(["*/*"]);
  expect(accepts(["X-Tenant", "accept"])).toEqual(["*/*"]);
  expect(accepts(["X-Tenant", "1", "accept", "text/plain"])).toEqual(["text/plain"]);
});
