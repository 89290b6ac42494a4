import type { CelFunc } from "@bufbuild/cel";
import { listFunctions } from "./lists.ts";
import { mathFunctions } from "./math.ts";
import { optionalFunctions } from "./optionals.ts";
import { stringFunctions } from "./strings.ts";
import { timeFunctions } from "./time.ts";

/** The functions that expressions have besides the library's standard ones, some of which they replace. */
export const functions: CelFunc[] = [
  ...stringFunctions,
  ...mathFunctions,
  ...listFunctions,
  ...optionalFunctions,
  ...timeFunctions,
];
