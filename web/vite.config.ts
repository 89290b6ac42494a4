import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { compression } from "vite-plugin-compression2";
import { NONCE_PLACEHOLDER } from "../src/page-paths.ts";

/** Where `npm start` serves the API. */
const SERVICE = process.env.SERVICE_URL ?? "http://localhost:8080";

export default defineConfig({
  plugins: [react(), compression({ algorithms: ["gzip", "brotliCompress"] })],
  html: { cspNonce: NONCE_PLACEHOLDER },
  build: { target: "es2023", emptyOutDir: true, assetsInlineLimit: 0 },
  // `npm run dev:web`: the page from its sources, the calls to a service that runs. The browser asks this server, and
  // the service must hear the same.
  server: { proxy: { "^/webhook\\.v1\\.": { target: SERVICE, changeOrigin: false } } },
});
