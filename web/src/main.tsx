import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { createPageRouter } from "./router.tsx";

import "@mantine/core/styles.css";
import "@mantine/dates/styles.css";
import "@mantine/notifications/styles.css";
import "./page.css";

createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <App router={createPageRouter()} />
  </StrictMode>,
);
