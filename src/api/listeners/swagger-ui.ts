import { createRequire } from "node:module";
import path from "node:path";

/** The folder of the swagger-ui-dist package. */
export const SWAGGER_UI_FOLDER = path.dirname(
  createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"),
);
/** The files of that package that the page at /docs loads. */
export const SWAGGER_UI_FILES: readonly string[] = [
  "swagger-ui.css",
  "swagger-ui-bundle.js",
  "favicon-32x32.png",
];
