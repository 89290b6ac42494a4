import { afterAll, expect, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { startTestApi } from "../support/test-api.ts";

const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8,::1/128" }).limits;
const api = await startTestApi({ limits: { trustedProxies } });
afterAll(() => api.stop());

test.each([
  ["203.0.113.1", "203.0.113.1"],
  ["203.0.113.1:50123", "203.0.113.1"],
  ["2001:db8::1", "2001:db8::1"],
  ["[2001:db8::1]:50123", "2001:db8::1"],
  ["[2001:db8::1]", "2001:db8::1"],
  ["203.0.113.1:50123, 127.0.0.1:443", "203.0.113.1"],
  ["nobody:50123", undefined],
])("the audit log has the address of a caller that proxies write as %s", async (header, address) => {
  const { installedApp } = await api.keys.createInstalledApp(
    { name: header },
    { headers: { "X-Forwarded-For": header } },
  );
  const { entries } = await api.audit.listAuditEntries({ targetId: installedApp?.id as string });
  expect(entries.map(({ actor }) => actor?.address)).toEqual([address]);
});
