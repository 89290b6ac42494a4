import { Container, Loader, Stack, VisuallyHidden } from "@mantine/core";
import { Navigate, useLocation } from "react-router";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { useSessionAccess } from "../api/session.tsx";
import { Failure } from "../parts/status/failure.tsx";
import { Layout } from "./layout.tsx";

/** The navigation state of the sign-in page. */
export interface SignInState {
  /** The path to return to. */
  from?: string;
  /** Whether a session ended by itself. */
  ended?: boolean;
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
          <Failure error={state.error} onRetry={refresh} />
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
