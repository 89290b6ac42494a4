import { expect, test } from "vitest";
import { readConfig } from "../../../src/config/config.ts";
import { createGuards } from "../../../src/delivery/request/guards.ts";
import { createTargetRules } from "../../../src/delivery/request/target-url.ts";

const rulesWith = (environment: NodeJS.ProcessEnv) =>
  createTargetRules(createGuards(readConfig(environment).delivery));
const rules = rulesWith({});

test.each([
  ["https://Example.COM/Hooks", "https://example.com/Hooks"],
  ["https://example.com:443/a", "https://example.com/a"],
  ["https://example.com./a", "https://example.com/a"],
  ["https://example.com/a/../b?x=1", "https://example.com/b?x=1"],
  ["https://bücher.example/", "https://xn--bcher-kva.example/"],
  [
    "https://example.com/فروشگاه\u200cها?q=👩\u200d💻",
    "https://example.com/%D9%81%D8%B1%D9%88%D8%B4%DA%AF%D8%A7%D9%87%E2%80%8C%D9%87%D8%A7?q=%F0%9F%91%A9%E2%80%8D%F0%9F%92%BB",
  ],
  ["https://نامه\u200cای.example/", "https://xn--mgba3gch31f060k.example/"],
  ["https://a_b.example/x_y?z=[1]|{2}", "https://a_b.example/x_y?z=[1]|{2}"],
  ["https://receiver/", "https://receiver/"],
  ["https://93.184.216.34/x", "https://93.184.216.34/x"],
  ["https://example.com:8443/%E2%80%AE", "https://example.com:8443/%E2%80%AE"],
])("a webhook's address %s is requested as %s", (given, target) => {
  expect(rules.normalise(given, null)).toBe(target);
});

test.each([
  ["http://example.com/", /only https:\/\/ is allowed/],
  ["example.com/hooks", /not an absolute URL/],
  ["https://", /not an absolute URL/],
  ["https://exam ple.com/", /has no valid host name.*send a URL such as/],
  ["https://example.com:99999/", /a port that is not from 1 to 65535/],
  ["ftp://example.com/", /begins with ftp:\/\//],
  ["https://user:secret@example.com/", /contains a user name or password.*set it as Basic authentication/],
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
  ["https://exam\u200Dple.com/", /no valid host name/],
  ["https://example.com/\u200E", /U\+200E/],
  ["https://exam\nple.com/", /U\+000A/],
  ["https://example.com/a\u2066b", /U\+2066/],
  [`https://example.com/${"a".repeat(2_048)}`, /has 2068 characters; at most 2048/],
  [`https://example.com/${"ü".repeat(600)}`, /after percent-encoding; at most 2048/],
])("a webhook's address %s is refused with a reason", (given, reason) => {
  expect(() => rules.normalise(given, null)).toThrow(reason);
});

const OPERATORS = { DELIVERY_ALLOWED_NETWORKS: "10.0.0.0/8", DELIVERY_ALLOWED_PORTS: "6379" };
const CUSTOMERS = { CUSTOMER_ALLOWED_NETWORKS: "10.0.0.0/8", DELIVERY_ALLOWED_PORTS: "6379" };

test.each([
  [OPERATORS, null, "acme", /10\.0\.0\.1 is a private address.*with CUSTOMER_ALLOWED_NETWORKS\)/],
  [CUSTOMERS, "acme", null, /10\.0\.0\.1 is a private address.*with DELIVERY_ALLOWED_NETWORKS\)/],
])(
  "with %j, a literal address is allowed to webhooks of %s and refused to those of %s",
  (environment, allowed, refused, reason) => {
    const limited = rulesWith(environment);
    const url = "https://10.0.0.1:6379/hooks";
    expect(limited.normalise(url, allowed)).toBe(url);
    expect(() => limited.normalise(url, refused)).toThrow(reason);
    expect(limited.normalise("https://example.com:6379/", refused)).toBe("https://example.com:6379/");
  },
);
