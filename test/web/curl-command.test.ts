import { spawnSync } from "node:child_process";
import fc from "fast-check";
import { expect, test } from "vitest";
import { curlCommand } from "../../web/src/pages/deliveries/delivery/curl-command.ts";

test("the cURL command gives curl the URL, the headers and the body as they are, whatever they contain", () => {
  // Anything but NUL, which no argument can contain.
  const text = fc.string({ unit: "binary" }).map((any) => any.replaceAll("\0", ""));
  const header = fc.record({ name: fc.constant("X-Any"), value: text });
  fc.assert(
    fc.property(text, fc.array(header, { maxLength: 3 }), text, (url, headers, body) => {
      const shell = `curl() { printf '%s\\0' "$@"; }\n${curlCommand(url, headers, body)}`;
      const { stdout } = spawnSync("sh", ["-c", shell], { encoding: "utf8" });
      const expected = [
        "-X",
        "POST",
        url,
        ...headers.flatMap(({ name, value }) => ["-H", `${name}: ${value}`]),
        "--data-raw",
        body,
      ];
      expect(stdout.split("\0").slice(0, -1)).toEqual(expected);
    }),
    { numRuns: 15 },
  );
});
