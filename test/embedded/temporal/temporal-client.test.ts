import { expect, inject, test } from "vitest";
import { assertTemporalServes } from "../../../src/embedded/temporal/temporal-client.ts";
import { useRefusingProxy } from "../../support/refusing-proxy.ts";

test("the embedded Temporal is reached directly, whatever the proxy variables say", async () => {
  const proxied = await useRefusingProxy();
  await assertTemporalServes(inject("temporalAddress"), "default", []);
  expect(proxied()).toBe(0);
});
