import { expect, test } from "vitest";
import { read } from "./project.ts";

interface Question {
  section: string;
  text: string;
}

/** Everything that the contract says is not shown, with the section or rule that says it. */
function notShown(contract: string): Question[] {
  let section = "";
  return contract.split("\n").flatMap((line) => {
    section = /^#{2,3} (\d+(?:\.\d+)*)/.exec(line)?.[1] ?? section;
    const item = /^\s*(\d+)\. /.exec(line)?.[1];
    return line
      .replace(/^\s*\d+\. /, "")
      .split(/(?<=\.)\s+/)
      .flatMap((sentence) => {
        const text = /^(.+): not shown\.?$/.exec(sentence.trim())?.[1];
        return text === undefined ? [] : [{ section: item ? `${section}.${item}` : section, text }];
      });
  });
}

/** The items of the list that answers them. */
function answers(document: string): (Question & { answer: string })[] {
  return [...document.matchAll(/^- (\d[\d.]*), (.+?): (.+)$/gm)].map(
    ([, section = "", text = "", answer = ""]) => ({ section, text, answer }),
  );
}

const questions = notShown(read("docs/contract.md"));
const answered = answers(read("docs/api.md"));

test("every mention of `not shown` in the contract is understood as a question", () => {
  expect(read("docs/contract.md").match(/not shown/g)).toHaveLength(questions.length);
});

test("docs/api.md answers each question that the contract leaves open, and no other", () => {
  expect(answered.map(({ section, text }) => ({ section, text }))).toEqual(questions);
  expect(answered.filter(({ answer }) => answer.length <= 10)).toEqual([]);
});
