import { expect, test } from "vitest";
import { fetchToken } from "../../src/delivery/oauth2/token-request.ts";
import { notBuilt } from "../../src/delivery/request/not-built.ts";
import { describeStatus, type Outcome } from "../../src/delivery/request/outcome.ts";
import { post } from "../../src/delivery/request/post.ts";
import { causeOfLatest, failureCause, subjectOf } from "../../src/incidents/causes.ts";
import { causeIn } from "../../src/incidents/dns-zones.ts";
import { createAddressGuard } from "../../src/lib/egress/address-guard.ts";
import { describeFault, FAULTS } from "../../src/lib/egress/faults.ts";
import { lookupError, REASONS } from "../../src/lib/egress/name-resolver.ts";
import { ProxyRefusedError, ProxyUnavailableError } from "../../src/lib/egress/proxy-error.ts";
import { read } from "../repository/project.ts";

const withCode = (code: string) => Object.assign(new Error("message"), { code });
const codeOf = (error: string) => failureCause(null, error).code;

test.each(Object.keys(FAULTS))("the error %s has a cause and a remedy", (code) => {
  const cause = failureCause(null, describeFault(withCode(code)));
  // `connection` is the cause of errors that the service does not know.
  expect(["connection", "unknown"]).not.toContain(cause.code);
  expect(cause.summary).not.toContain(";");
  expect(cause.remedy).toMatch(/\w/);
  expect(cause.remedy).not.toContain(`(${code})`);
});

test.each([
  ["CERT_HAS_EXPIRED", "certificate_expired"],
  ["ERR_TLS_CERT_ALTNAME_INVALID", "certificate_name"],
  ["DEPTH_ZERO_SELF_SIGNED_CERT", "certificate_untrusted"],
  ["CERT_REVOKED", "certificate"],
  ["UNSPECIFIED", "certificate"],
  ["ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED", "tls_client_certificate"],
  ["ERR_SSL_TLSV1_ALERT_DECODE_ERROR", "tls"],
  ["ECONNREFUSED", "connection_refused"],
  ["ECONNRESET", "connection_closed"],
  ["UND_ERR_CONNECT_TIMEOUT", "connection_timeout"],
  ["EPROTO", "connection"],
  ["HPE_INVALID_VERSION", "not_http"],
  ["EMFILE", "service"],
  ["TypeError", "service"],
])("the error %s is caused by %s", (code, cause) => {
  expect(codeOf(describeFault(withCode(code)))).toBe(cause);
});

test.each([...Object.keys(REASONS), "EBADRESP"])("the lookup error %s is one of DNS", (code) => {
  const name = code === "ENOTFOUND" || code === "ENODATA" || code === "EBADNAME";
  expect(codeOf(lookupError("shop.example", code).message)).toBe(name ? "dns_not_found" : "dns_failed");
});

test("refused addresses, proxies, and requests that were not built have their causes", async () => {
  const guard = createAddressGuard([]);
  for (const refuse of [() => guard.check("10.0.0.1"), () => guard.checkPort(25)]) {
    let error: unknown;
    try {
      refuse();
    } catch (thrown) {
      error = thrown;
    }
    expect(failureCause(null, describeFault(error as Error))).toMatchObject({
      code: "address_refused",
      remedy: expect.stringContaining("DELIVERY_ALLOWED_"),
    });
  }
  const proxies = [
    new ProxyRefusedError("it cannot reach the receiver (502)", "host"),
    new ProxyUnavailableError("x"),
  ];
  expect(proxies.map((error) => codeOf(describeFault(error)))).toEqual(["proxy", "proxy"]);
  expect(codeOf(notBuilt(new Error("a secret cannot be decrypted")).error ?? "")).toBe("service");
});

test.each([
  [false, "connection_timeout"],
  [true, "no_response"],
])("an attempt that times out, with its request sent: %s, is caused by %s", async (sent, code) => {
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  const request = {
    origin: "https://a.example",
    path: "/",
    headers: {},
    body: "",
    signed: new Date(),
    timeoutMs: 1,
  };
  const client = {
    dispatch(_options: unknown, handler: { onRequestStart: (controller: never) => void }) {
      if (sent) handler.onRequestStart({ abort() {} } as never);
      return () => {};
    },
  };
  post(client as never, request as never, 1, resolve);
  const { status, error } = await promise;
  expect(failureCause(status, error).code).toBe(code);
});

test("an unreachable token endpoint is the cause, for all webhooks that use it", async () => {
  const client = { tokenUrl: "https://login.example/token", clientId: "id", clientSecret: "secret" };
  const dispatch = (
    _options: unknown,
    handler: { onError?: (error: Error) => void; onResponseError?: (c: null, error: Error) => void },
  ) => {
    (handler.onResponseError?.bind(handler, null) ?? handler.onError?.bind(handler))?.(
      withCode("ECONNREFUSED"),
    );
    return true;
  };
  const { message } = await fetchToken({ dispatch } as never, client as never).catch((error) => error);
  const cause = failureCause(null, message);
  expect(cause.code).toBe("token_endpoint");
  expect(subjectOf(cause, "https://shop.example/hooks")).toBe("login.example");
});

test.each([
  [301, "http_3xx", "register the URL that the receiver redirects to"],
  [401, "http_401", /authentication/],
  [418, "http_418", /see the receiver's log/],
  [429, "http_429", /rate limit/],
  [503, "http_5xx", /see the receiver's log/],
])("status %i is cause %s", (status, code, remedy) => {
  const error = describeStatus(status, status === 429 ? 5_000 : null);
  const cause = failureCause(status, error);
  expect(cause).toMatchObject({ code, summary: expect.stringContaining(`the receiver answers ${status} `) });
  expect(cause.remedy).toEqual(typeof remedy === "string" ? remedy : expect.stringMatching(remedy));
  const latest = [`HTTP status ${status}`, error].filter((each) => each !== null).join(": ");
  expect(causeOfLatest(latest)).toEqual(cause);
});

test("the cause of an incident of a domain names no single host", () => {
  const cause = failureCause(null, lookupError("a.shop.example", "ENOTFOUND").message);
  expect(causeIn("a.shop.example", cause)).toEqual(cause);
  const summary = "host names do not resolve";
  expect(causeIn("hosts of shop.example", cause)).toEqual({ ...cause, summary });
});

test("the definition of the API lists every cause of connection errors", () => {
  const listed = [...read("proto/webhook/v1/incident.proto").matchAll(/^\/\/ - ([\w, ]+):/gm)].flatMap(
    ([, codes = ""]) => codes.split(", "),
  );
  const [, causes = ""] =
    /export type FaultCause =\n([\s\S]*?);/.exec(read("src/lib/egress/faults.ts")) ?? [];
  const codes = [...causes.matchAll(/"(\w+)"/g)].map(([, code]) => code);
  expect(listed.toSorted()).toEqual([...codes, "token_endpoint", "unknown", "certificate_ends"].toSorted());
});
