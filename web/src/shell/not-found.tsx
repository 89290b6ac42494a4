import { Button } from "@mantine/core";
import { IconMapOff } from "@tabler/icons-react";
import { Link } from "react-router";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { PageTitle } from "../parts/layout/page-title.tsx";
import { Empty } from "../parts/lists/empty.tsx";

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
