import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { restBindings } from "../src/api/rest/bindings.ts";
import { SERVICES } from "../src/api/routes.ts";
import { openApiDocument } from "./openapi/document.ts";

const DOCUMENT = new URL("../gen/openapi.json", import.meta.url);

/** Writes gen/openapi.json, or with --check says whether it is up to date. */
function main(): number {
  const text = `${JSON.stringify(openApiDocument(restBindings(SERVICES)), null, 1)}\n`;
  if (!process.argv.includes("--check")) {
    writeFileSync(DOCUMENT, text);
    return 0;
  }
  if (existsSync(DOCUMENT) && readFileSync(DOCUMENT, "utf8") === text) {
    console.log("gen/openapi.json is up to date");
    return 0;
  }
  console.error("gen/openapi.json is out of date. Run `npm run generate` and commit the result.");
  return 1;
}

process.exitCode = main();
