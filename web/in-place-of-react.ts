import { fileURLToPath } from "node:url";

/** What the page has in place of React's modules: Preact, a sixth of the size. Types, and what libraries expect, are React's. */
export const IN_PLACE_OF_REACT = {
  react: fileURLToPath(new URL("react.ts", import.meta.url)),
  "react/jsx-runtime": "preact/jsx-runtime",
  "react/jsx-dev-runtime": "preact/jsx-dev-runtime",
  "react-dom": "preact/compat",
  "react-dom/client": "preact/compat/client",
};
