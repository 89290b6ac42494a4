import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { BASE_PATH } from "./base-path.ts";
import { createPageRouter } from "./router.tsx";

import "@fontsource-variable/geist/wght.css";
import "@mantine/core/styles.layer.css";
import "./page.css";

const { pathname, search, hash } = window.location;
// Whoever opens the service without its proxy, or the prefix without a slash, goes below the prefix.
if (!pathname.startsWith(`${BASE_PATH}/`)) {
  const page = pathname === BASE_PATH ? "/" : pathname;
  window.location.replace(BASE_PATH + page + search + hash);
} else {
  createRoot(document.getElementById("root") as HTMLElement).render(
    <StrictMode>
      <App router={createPageRouter()} />
    </StrictMode>,
  );
}
