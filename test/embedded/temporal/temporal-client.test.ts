import { expect, test } from "vitest";
import { assertTemporalServes } from "../../../src/embedded/temporal/temporal-client.ts";
import { part } from "../../support/parts.ts";
import { useRefusingProxy } from "../../support/refusing-proxy.ts";

test("the embedded Temporal is reached directly, whatever the proxy variables say", async () => {
  const proxied = await useRefusingProxy();
  await assertTemporalServes((await part("temporal")).address, "default", []);
  expect(proxied()).toBe(0);
});
