import { Button } from "@mantine/core";
import { IconLock } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Navigate, Outlet, useLocation } from "react-router";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { type PermissionName, useMay, useSessionAccess } from "../api/session.tsx";
import { Empty } from "../parts/lists/empty.tsx";
import { notifyFailure } from "../parts/status/notify-failure.ts";

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
