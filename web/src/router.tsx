import type { ComponentType } from "react";
import { createBrowserRouter, type RouteObject } from "react-router";
import { PAGE_PATHS } from "../../src/contract/page-paths.ts";
import { BASE_PATH } from "./base-path.ts";
import { Crash, Gate, NotFound, Permitted, Root, Waiting } from "./shell/gate.tsx";

/** The router of the settings page. */
export type PageRouter = ReturnType<typeof createBrowserRouter>;

/** Creates the router of the settings page, which starts at the browser's address. */
export function createPageRouter(): PageRouter {
  /** A page in a separate chunk, loaded at the first visit. */
  function page(path: string, load: () => Promise<{ default: ComponentType }>): RouteObject {
    const opened = (error: unknown) => openAnew(router, error);
    return { path, lazy: async () => ({ Component: (await load().catch(opened)).default }) };
  }
  const routes: RouteObject[] = [
    {
      Component: Root,
      ErrorBoundary: Crash,
      HydrateFallback: Waiting,
      children: [
        page(PAGE_PATHS.signIn, () => import("./shell/sign-in.tsx")),
        {
          Component: Gate,
          children: [
            {
              element: <Permitted needs="Read_Administrative_Data" />,
              ErrorBoundary: Crash,
              children: [
                page(PAGE_PATHS.overview, () => import("./pages/overview/index.tsx")),
                page(PAGE_PATHS.incidents, () => import("./pages/incidents/index.tsx")),
                page(PAGE_PATHS.incident, () => import("./pages/incidents/incident.tsx")),
                page(PAGE_PATHS.webhooks, () => import("./pages/webhooks/index.tsx")),
                page(PAGE_PATHS.newWebhook, () => import("./pages/webhooks/new-webhook.tsx")),
                page(PAGE_PATHS.webhook, () => import("./pages/webhooks/webhook.tsx")),
                page(PAGE_PATHS.deliveries, () => import("./pages/deliveries/index.tsx")),
                page(PAGE_PATHS.delivery, () => import("./pages/deliveries/delivery.tsx")),
                page(PAGE_PATHS.replays, () => import("./pages/replays/index.tsx")),
                page(PAGE_PATHS.event, () => import("./pages/events/event.tsx")),
                page(PAGE_PATHS.customers, () => import("./pages/customers/index.tsx")),
                page(PAGE_PATHS.customer, () => import("./pages/customers/customer.tsx")),
              ],
            },
            {
              element: <Permitted needs="Manage_Api_Keys" />,
              ErrorBoundary: Crash,
              children: [
                page(PAGE_PATHS.keys, () => import("./pages/keys/index.tsx")),
                page(PAGE_PATHS.apps, () => import("./pages/apps/index.tsx")),
                page(PAGE_PATHS.audit, () => import("./pages/audit/index.tsx")),
              ],
            },
            { path: "*", Component: NotFound },
          ],
        },
      ],
    },
  ];
  // With the slash, the overview has one too: proxies serve what is below the prefix.
  const router = createBrowserRouter(routes, { basename: `${BASE_PATH}/` });
  return router;
}

/**
 * Opens the page that a link leads to in a new document, if the service answers. Chromium does not load a chunk again in the same
 * document after a failure, and a newer version of the service has other chunks.
 */
async function openAnew(router: PageRouter, error: unknown): Promise<never> {
  const { location } = router.state.navigation;
  if (!location) throw error;
  const url = router.createHref(location);
  const answers = await fetch(url, { method: "HEAD" }).then(
    ({ ok }) => ok,
    () => false,
  );
  // The user may have followed another link meanwhile.
  if (!answers || router.state.navigation.location !== location) throw error;
  window.location.assign(url);
  return new Promise(() => {});
}
