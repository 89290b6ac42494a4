import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../../../gen/webhook/v1/audit_pb.ts";
import { readConfig } from "../../../src/config/config.ts";
import { grpc } from "../../support/clients.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8,::1/128" }).limits;
  api = await startTestApi({ limits: { trustedProxies } });
});
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
  const { installedApp } = await createClient(ApiKeyService, grpc(api)).createInstalledApp(
    { name: header },
    { headers: { "X-Forwarded-For": header } },
  );
  const { entries } = await createClient(AuditService, grpc(api)).listAuditEntries({
    targetId: installedApp?.id as string,
  });
  expect(entries.map(({ actor }) => actor?.address)).toEqual([address]);
});
