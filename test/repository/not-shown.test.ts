import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (file: string) => readFileSync(new URL(`../../docs/${file}`, import.meta.url), "utf8");

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

const questions = notShown(read("contract.md"));
const answered = answers(read("api.md"));

test("every mention of `not shown` in the contract is understood as a question", () => {
  expect(read("contract.md").match(/not shown/g)).toHaveLength(questions.length);
});

test.each(questions)(
  "docs/api.md answers what the contract does not show in §$section: $text",
  ({ section, text }) => {
    const answer = answered.find((each) => each.section === section && each.text === text)?.answer;
    expect(answer?.length ?? 0).toBeGreaterThan(10);
  },
);

test("docs/api.md answers no question that the contract does not leave open", () => {
  expect(answered.map(({ section, text }) => ({ section, text }))).toEqual(questions);
});
