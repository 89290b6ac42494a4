import { readFileSync } from "node:fs";
import path from "node:path";
import { constants } from "node:zlib";
import { fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";
import { compression, defineAlgorithm } from "vite-plugin-compression2";
import { SWAGGER_UI_FILES, SWAGGER_UI_FOLDER } from "../src/api/listeners/swagger-ui.ts";
import { NONCE_PLACEHOLDER } from "../src/contract/page-paths.ts";
import { IN_PLACE_OF_REACT } from "./in-place-of-react.ts";

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

/** Where the styles of all components are imported. */
const ALL_STYLES = "@mantine/core/styles.layer.css";

/** Puts the styles of each component into its chunk, in place of those of all components into the first one. */
function stylesOfComponents(): Plugin {
  return {
    name: "styles-of-components",
    apply: "build",
    enforce: "pre",
    resolveId: (source) => (source === ALL_STYLES ? "\0base-styles.css" : undefined),
    load: (id) =>
      id === "\0base-styles.css"
        ? '@import "@mantine/core/styles/baseline.layer.css"; @import "@mantine/core/styles/global.layer.css";'
        : undefined,
    transform: {
      filter: { id: /@mantine\/core\/esm\/.*\.module\.mjs$/ },
      handler: (code, id) =>
        `import "@mantine/core/styles/${path.basename(id, ".module.mjs")}.layer.css";\n${code}`,
    },
  };
}

/**
 * Writes the descriptors of messages as text, which compresses better than base64, and without their options, which the page does not
 * read.
 */
function smallDescriptors(): Plugin {
  const small = (base64: string) => {
    const file = fromBinary(FileDescriptorProtoSchema, base64Decode(base64));
    dropUnknown(file);
    return Buffer.from(toBinary(FileDescriptorProtoSchema, file)).toString("latin1");
  };
  return {
    name: "small-descriptors",
    apply: "build",
    transform: {
      filter: { id: /\/gen\/.*_pb\.ts$/ },
      handler: (code) =>
        code.replace(
          /fileDesc\("([\w+/]+)"/,
          (_, base64: string) => `fileDesc(btoa(${JSON.stringify(small(base64))})`,
        ),
    },
  };
}

/** Drops the fields that the descriptor's own schema does not have: options of this service. */
function dropUnknown(message: object): void {
  delete (message as Message).$unknown;
  for (const value of Object.values(message)) if (value && typeof value === "object") dropUnknown(value);
}

/** Quality 11, the default, takes seven seconds of the first start instead of one, for files that are 8 % smaller. */
const BROTLI = defineAlgorithm("brotliCompress", { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } });

export default defineConfig({
  plugins: [
    react(),
    stylesOfComponents(),
    smallDescriptors(),
    swaggerUi(),
    compression({ algorithms: ["gzip", BROTLI] }),
  ],
  resolve: {
    alias: Object.entries(IN_PLACE_OF_REACT).map(([name, replacement]) => ({
      find: new RegExp(`^${name}$`),
      replacement,
    })),
  },
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
