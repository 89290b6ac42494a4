import { expect, test } from "vitest";
import { KEY_OWNERS, reachingMethods, reachOf, securityDocument } from "../../scripts/security-document.ts";
import { read } from "./project.ts";

test("the table in docs/security.md is that of the methods and what they reach", () => {
  const { current, generated } = securityDocument();
  expect(current).toBe(generated);
});

test("each method of which the table says something special exists", () => {
  const named = read("scripts/security-document.ts").matchAll(/^ {2}"(\w+\.\w+)":/gm);
  const names = [...named].map(([, name]) => name);
  expect(names.length).toBeGreaterThan(10);
  expect([...reachingMethods().keys()]).toEqual(expect.arrayContaining(names));
});

test("no key but the operator's reaches everything, except events to publish", () => {
  const reaching = [...reachingMethods().keys()].filter((name) =>
    KEY_OWNERS.some((owner) => owner !== "operator" && reachOf(name)[owner] === "everything"),
  );
  expect(reaching).toEqual([
    "EventService.PublishEvent",
    "EventService.PublishEvents",
    "EventService.PublishEventBatch",
  ]);
});
