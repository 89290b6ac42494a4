import { Anchor } from "@mantine/core";
import { IconArrowLeft } from "@tabler/icons-react";
import { Link } from "react-router";

/** Leads from one thing's page to the list of all, above the page's title. */
export function BackLink({ to, children }: { to: string; children: string }) {
  return (
    <Anchor
      component={Link}
      to={to}
      size="sm"
      display="inline-flex"
      mb="xs"
      style={{ alignItems: "center", gap: 4 }}
    >
      <IconArrowLeft size={14} aria-hidden />
      {children}
    </Anchor>
  );
}
