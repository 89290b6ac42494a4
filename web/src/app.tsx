import { MantineProvider } from "@mantine/core";
import { setNonce } from "get-nonce";
import { RouterProvider } from "react-router";
import { SessionProvider } from "./api/session.tsx";
import type { Connect } from "./api/transport.ts";
import { useFocusOfBusyButtons } from "./parts/focus.ts";
import type { PageRouter } from "./router.tsx";
import { colorSchemeManager, cssVariables, styleNonce, theme } from "./theme.ts";

// What locks the page's scrolling behind a dialog makes a style tag too.
setNonce(styleNonce());

/** What the settings page needs from outside. */
export interface AppProps {
  router: PageRouter;
  /** Defaults to calls of the service that served the page. */
  connect?: Connect;
}

/** The settings page. */
export function App({ router, connect }: AppProps) {
  useFocusOfBusyButtons();
  return (
    <MantineProvider
      theme={theme}
      cssVariablesResolver={cssVariables}
      colorSchemeManager={colorSchemeManager}
      defaultColorScheme="auto"
      getStyleNonce={styleNonce}
      deduplicateCssVariables={false}
    >
      <SessionProvider connect={connect}>
        <RouterProvider router={router} />
      </SessionProvider>
    </MantineProvider>
  );
}
