import { expect, test } from "vitest";
import { createTargetRules } from "../../../src/delivery/request/target-url.ts";
import { createAddressGuard } from "../../../src/lib/egress/address-guard.ts";

const rules = createTargetRules(createAddressGuard([]));

test.each([
  ["https://Example.COM/Hooks", "https://example.com/Hooks"],
  ["https://example.com:443/a", "https://example.com/a"],
  ["https://example.com./a", "https://example.com/a"],
  ["https://example.com/a/../b?x=1", "https://example.com/b?x=1"],
  ["https://bücher.example/", "https://xn--bcher-kva.example/"],
  ["https://93.184.216.34/x", "https://93.184.216.34/x"],
  ["https://example.com:8443/%E2%80%AE", "https://example.com:8443/%E2%80%AE"],
])("a webhook's address %s is requested as %s", (given, target) => {
  expect(rules.normalise(given)).toBe(target);
});

test.each([
  ["http://example.com/", /only https:\/\/ is allowed/],
  ["example.com/hooks", /not an absolute URL/],
  ["https://user:secret@example.com/", /contains a user name or password/],
  ["https://example.com/#part", /fragment/],
  ["https://example.com/#", /fragment/],
  [" https://example.com/", /white space/],
  ["https://127.0.0.1/", /loopback/],
  ["https://2130706433/", /loopback/],
  ["https://[::1]/", /loopback/],
  ["https://169.254.169.254/latest/meta-data", /link-local/],
  ["https://example.com:0/", /port 0 is not a valid port/],
  ["https://example.com:22/", /port 22 belongs to another protocol.*DELIVERY_ALLOWED_PORTS/],
  ["https://example.com/\u202Egnp.evil", /U\+202E.*remove it/],
  ["https://exam\u200Bple.com/", /U\+200B/],
  ["https://exam\u00ADple.com/", /U\+00AD/],
  ["https://exam\nple.com/", /U\+000A/],
  ["https://example.com/a\u2066b", /U\+2066/],
  [`https://example.com/${"a".repeat(2_048)}`, /has 2068 characters; at most 2048/],
  [`https://example.com/${"ü".repeat(600)}`, /after percent-encoding; at most 2048/],
])("a webhook's address %s is refused with a reason", (given, reason) => {
  expect(() => rules.normalise(given)).toThrow(reason);
});
