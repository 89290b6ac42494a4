import { expect, test, vi } from "vitest";
import { SECRETS_IN_FILES } from "../../../src/config/secret-files.ts";
import { downloadEnvironment, serverEnvironment } from "../../../src/embedded/process/child-environment.ts";

test("embedded servers and downloaders get none of the service's secrets", () => {
  try {
    for (const name of [...SECRETS_IN_FILES, "TEMPORAL_API_KEY"]) vi.stubEnv(name, "telling");
    vi.stubEnv("HTTPS_PROXY", "http://proxy.example");
    expect(JSON.stringify([serverEnvironment(), downloadEnvironment()])).not.toContain("telling");
    expect(downloadEnvironment().HTTPS_PROXY).toBe("http://proxy.example");
  } finally {
    vi.unstubAllEnvs();
  }
});
