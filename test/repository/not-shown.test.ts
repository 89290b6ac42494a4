import { expect, test } from "vitest";
import { read } from "./project.ts";

/** Everything that the contract says is not shown, after the section or rule that says it. */
function notShown(contract: string): string[] {
  let section = "";
  return contract.split("\n").flatMap((line) => {
    section = /^#{2,3} (\d+(?:\.\d+)*)/.exec(line)?.[1] ?? section;
    const [, item, text = ""] = /^\s*(?:(\d+)\. )?(.*)$/.exec(line) ?? [];
    return [...text.matchAll(/([^.]+): not shown/g)].map(
      ([, question = ""]) => `${item ? `${section}.${item}` : section}, ${question.trim()}`,
    );
  });
}

test("docs/api.md answers each question that the contract leaves open, and no other", () => {
  const contract = read("docs/contract.md");
  const questions = notShown(contract);
  expect(contract.match(/not shown/g)).toHaveLength(questions.length);
  const answers = [...read("docs/api.md").matchAll(/^- (\d[\d.]*, .+?): (.+)$/gm)];
  expect(answers.map(([, question]) => question)).toEqual(questions);
  for (const [, question, answer = ""] of answers) expect(answer.length, question).toBeGreaterThan(10);
});
