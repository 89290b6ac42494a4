import { restBindings } from "../src/api/rest/bindings.ts";
import { SERVICES } from "../src/app/services.ts";
import { writeOrCheck } from "./generated-file.ts";
import { openApiDocument } from "./openapi/document.ts";

const text = `${JSON.stringify(openApiDocument(restBindings(SERVICES)), null, 1)}\n`;
process.exitCode = writeOrCheck("gen/openapi.json", text);
