import { expect, test } from "vitest";
import { startArguments } from "../support/service-process.ts";
import { read } from "./project.ts";

test("the image starts the service with the arguments that `npm start` gives to node", () => {
  const command = JSON.parse(/^CMD (\[.*\])$/m.exec(read("Dockerfile"))?.[1] ?? "[]") as string[];
  expect(command).toEqual(["node", ...startArguments(), "src/main.ts"]);
});
