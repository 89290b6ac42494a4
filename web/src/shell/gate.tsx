import { Alert, Button, Code, Container, Loader, Stack, Text, VisuallyHidden } from "@mantine/core";
import { IconLock, IconMapOff } from "@tabler/icons-react";
import { lazy, type ReactNode, Suspense } from "react";
import { Link, Navigate, Outlet, useLocation, useRouteError } from "react-router";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { type PermissionName, useMay, useSessionAccess } from "../api/session.tsx";
import { Failure, notifyFailure } from "../parts/failure.tsx";
import { Empty } from "../parts/lists.tsx";
import { PageTitle } from "../parts/page.tsx";
import { Layout } from "./layout.tsx";

/** The navigation state of the sign-in page. */
export interface SignInState {
  /** The path to return to. */
  from?: string;
  /** Whether a session ended by itself. */
  ended?: boolean;
}

// Loaded once a page is shown: the first message comes later, or waits for it.
const Messages = lazy(() => import("./messages.tsx"));

/** Every page, with what is said in passing. */
export function Root() {
  return (
    <>
      <Outlet />
      <Suspense>
        <Messages />
      </Suspense>
    </>
  );
}

/** Lets who is signed in through to the pages, and sends everybody else to sign in and back. */
export function Gate() {
  const { state, refresh } = useSessionAccess();
  const { pathname, search } = useLocation();
  switch (state.is) {
    case "unknown":
      return <Waiting />;
    case "failed":
      return (
        <Container size="xs" py="xl" component="main">
          <Failure error={state.error} onRetry={refresh} alone />
        </Container>
      );
    case "out": {
      const back: SignInState = state.because === "left" ? {} : { from: `${pathname}${search}` };
      return (
        <Navigate to={PAGE_PATHS.signIn} replace state={{ ...back, ended: state.because === "ended" }} />
      );
    }
    case "in":
      return <Layout />;
  }
}

/** Stands where the page itself is on its way. */
export function Waiting() {
  return (
    <Stack align="center" justify="center" mih="100vh" component="main" aria-busy>
      <Loader type="dots" />
      <VisuallyHidden role="status">Loading</VisuallyHidden>
    </Stack>
  );
}

/** Shows pages to sessions that may see them, and tells the others what they would need. */
export function Permitted({ needs }: { needs: PermissionName }): ReactNode {
  const may = useMay(needs);
  const managesKeys = useMay("Manage_Api_Keys");
  const { pathname } = useLocation();
  const { signOut } = useSessionAccess();

  function leave() {
    signOut().catch((error: unknown) => notifyFailure("You are still signed in", error));
  }

  if (may) return <Outlet />;
  // The first page is not for keys that only manage keys; theirs is another.
  if (pathname === PAGE_PATHS.overview && managesKeys) return <Navigate to={PAGE_PATHS.keys} replace />;
  return (
    <Empty
      icon={<IconLock />}
      title="Your key does not have permission for this page"
      action={
        <Button variant="default" onClick={leave}>
          Sign in with another key
        </Button>
      }
    >
      It needs the permission {needs}. Who manages the API keys can make you a key that has it.
    </Empty>
  );
}

/** Stands at addresses that are no page's. */
export function NotFound() {
  return (
    <>
      <PageTitle title="Page not found" />
      <Empty
        icon={<IconMapOff />}
        title="No page has this address"
        action={
          <Button component={Link} to={PAGE_PATHS.overview} variant="default">
            To the overview
          </Button>
        }
      >
        Check its spelling, or start from the overview.
      </Empty>
    </>
  );
}

/** The errors for a part of the page that could not be loaded: in Chromium and Firefox, in Safari, and of Vite for its styles. */
const NOT_LOADED = /dynamically imported module|Importing a module script failed|Unable to preload CSS/;

/** Stands where a page could not be shown: by our fault, or since the service is away or serves a newer one by now. */
export function Crash() {
  const error = useRouteError();
  const message = error instanceof Error ? error.message : String(error);
  const isLoaded = !NOT_LOADED.test(message);
  return (
    <Container size="sm" py="xl">
      <Alert color="red" title={isLoaded ? "This page crashed" : "This page was not loaded"} role="alert">
        <Stack align="flex-start" gap="sm">
          <Text size="sm">
            {isLoaded
              ? "Reload the page. If that does not help, send this message to the operator of the service."
              : "The service does not answer, or was updated since you opened the page. Check that it runs and that you are connected to it, then reload the page."}
          </Text>
          <Code block>{message}</Code>
          <Button variant="default" onClick={() => window.location.reload()}>
            Reload the page
          </Button>
        </Stack>
      </Alert>
    </Container>
  );
}
