import { expect, test } from "vitest";
import { clientAddress } from "../../src/config/address.ts";

test.each([
  ["", "localhost:8080"],
  ["0.0.0.0", "localhost:8080"],
  ["::", "localhost:8080"],
  ["127.0.0.1", "localhost:8080"],
  ["10.1.2.3", "10.1.2.3:8080"],
  ["hooks.internal", "hooks.internal:8080"],
  ["fd00::7", "[fd00::7]:8080"],
])("clients reach a listener on HOST=%j at %s", (host, address) => {
  expect(clientAddress(host, 8080)).toBe(address);
});
