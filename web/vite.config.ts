import { readFileSync } from "node:fs";
import path from "node:path";
import { constants } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";
import { compression, defineAlgorithm } from "vite-plugin-compression2";
import { SWAGGER_UI_FILES, SWAGGER_UI_FOLDER } from "../src/api/listeners/swagger-ui.ts";
import { NONCE_PLACEHOLDER } from "../src/contract/page-paths.ts";

/** Where `npm start` serves the API. */
const SERVICE = process.env.SERVICE_URL ?? "http://localhost:8080";

/** The files of the API's documentation page, which are compressed like the page's own. */
function swaggerUi(): Plugin {
  return {
    name: "swagger-ui",
    generateBundle() {
      for (const file of SWAGGER_UI_FILES) {
        const source = readFileSync(path.join(SWAGGER_UI_FOLDER, file));
        this.emitFile({ type: "asset", fileName: `docs/${file}`, source });
      }
    },
  };
}

/** Quality 11, the default, takes seven seconds of the first start instead of one, for files that are 8 % smaller. */
const BROTLI = defineAlgorithm("brotliCompress", { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } });

export default defineConfig({
  plugins: [react(), swaggerUi(), compression({ algorithms: ["gzip", BROTLI] })],
  html: { cspNonce: NONCE_PLACEHOLDER },
  // The service adds BASE_PATH to the page alone; its scripts and styles find each other wherever they are.
  experimental: {
    renderBuiltUrl: (_file, { hostType }) => (hostType === "html" ? undefined : { relative: true }),
  },
  build: {
    target: "es2023",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    rolldownOptions: {
      // The pages of documents, which are not built, load the font by its name.
      output: {
        assetFileNames: ({ names: [name = ""] }) =>
          `assets/[name]${name.endsWith(".woff2") ? "" : "-[hash]"}[extname]`,
      },
    },
  },
  // `npm run dev:web`: the page from its sources, the calls to a service that runs. The browser asks this server, and
  // the service must hear the same.
  server: { proxy: { "^/webhook\\.v1\\.": { target: SERVICE, changeOrigin: false } } },
});
