import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { startArguments } from "../support/service-process.ts";

test("the image starts the service with the arguments that `npm start` gives to node", () => {
  const file = readFileSync(new URL("../../Dockerfile", import.meta.url), "utf8");
  const command = JSON.parse(/^CMD (\[.*\])$/m.exec(file)?.[1] ?? "[]") as string[];
  expect(command).toEqual(["node", ...startArguments(), "src/main.ts"]);
});
