import { execFileSync } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { LanguageVariant, SyntaxKind } from "typescript/unstable/ast";
import { createScanner } from "typescript/unstable/ast/scanner";

const FOLDERS = ["src", "workflows"];
const PROJECT = fileURLToPath(new URL("..", import.meta.url));

const usage = `npm run code-lines -- [FOLDER…] [--at COMMIT]

Prints the lines of TypeScript in folders, without comments and blank lines. Built files do not count.

  FOLDER       defaults to ${FOLDERS.join(" ")}
  --at COMMIT  counts the files of a commit instead of those of this checkout`;

/** Tokens after which a slash divides. After any other token, a slash starts a regular expression. */
const ENDS_OPERAND: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.Identifier,
  SyntaxKind.NumericLiteral,
  SyntaxKind.BigIntLiteral,
  SyntaxKind.StringLiteral,
  SyntaxKind.RegularExpressionLiteral,
  SyntaxKind.NoSubstitutionTemplateLiteral,
  SyntaxKind.TemplateTail,
  SyntaxKind.CloseParenToken,
  SyntaxKind.CloseBracketToken,
  SyntaxKind.CloseBraceToken,
  SyntaxKind.ThisKeyword,
  SyntaxKind.SuperKeyword,
  SyntaxKind.NullKeyword,
  SyntaxKind.TrueKeyword,
  SyntaxKind.FalseKeyword,
]);

/** The number of lines of a TypeScript source, without JSX, that contain a part of a token. */
function codeLines(source: string): number {
  const scanner = createScanner(true, LanguageVariant.Standard, source);
  const lines = new Set<number>();
  let line = 0;
  let read = 0;
  /** The open braces: whether each belongs to a template. */
  const braces: boolean[] = [];
  let previous: SyntaxKind = SyntaxKind.Unknown;
  for (let token = scanner.scan(); token !== SyntaxKind.EndOfFile; token = scanner.scan()) {
    if (token === SyntaxKind.SlashToken || token === SyntaxKind.SlashEqualsToken) {
      if (!ENDS_OPERAND.has(previous)) token = scanner.reScanSlashToken();
    } else if (token === SyntaxKind.TemplateHead || token === SyntaxKind.OpenBraceToken) {
      braces.push(token === SyntaxKind.TemplateHead);
    } else if (token === SyntaxKind.CloseBraceToken && braces.pop()) {
      token = scanner.reScanTemplateToken(false);
      if (token === SyntaxKind.TemplateMiddle) braces.push(true);
    }
    previous = token;
    const start = scanner.getTokenStart();
    line += breaksIn(source.slice(read, start));
    // Blank lines of a template do not count either.
    for (const text of source.slice(start, scanner.getTokenEnd()).split("\n")) {
      if (text.trim() !== "") lines.add(line);
      line += 1;
    }
    line -= 1;
    read = scanner.getTokenEnd();
  }
  return lines.size;
}

function breaksIn(text: string): number {
  return text.split("\n").length - 1;
}

/** The lines of code of a folder. @throws Error if it has no TypeScript */
export function linesOfFolder(root: string, folder: string): number {
  const files = globSync(`${folder}/**/*.ts`, { cwd: root, exclude: ["**/dist/**", "**/node_modules/**"] });
  if (files.length === 0) throw new Error(`${folder} has no TypeScript files`);
  return files.reduce((sum, file) => sum + codeLines(readFileSync(path.join(root, file), "utf8")), 0);
}

/** `npm run code-lines`. */
function main(): void {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { at: { type: "string" }, help: { type: "boolean", default: false } },
  });
  if (values.help) {
    console.log(usage);
    return;
  }
  const folders = positionals.length > 0 ? positionals : FOLDERS;
  const checkout = values.at === undefined ? undefined : mkdtempSync(path.join(tmpdir(), "webhook-lines-"));
  try {
    if (values.at !== undefined && checkout) {
      const archive = execFileSync("git", ["archive", values.at, "--", ...folders], {
        cwd: PROJECT,
        maxBuffer: 2 ** 28,
      });
      execFileSync("tar", ["-x", "-C", checkout], { input: archive });
    }
    const counts = folders.map((folder) => [folder, linesOfFolder(checkout ?? PROJECT, folder)] as const);
    const rows = [...counts, ["in all", counts.reduce((sum, [, count]) => sum + count, 0)] as const];
    const width = Math.max(...rows.map(([name]) => name.length));
    for (const [name, count] of rows) console.log(`${name.padEnd(width)}  ${String(count).padStart(6)}`);
  } finally {
    if (checkout) rmSync(checkout, { recursive: true, force: true });
  }
}

if (import.meta.main) main();
