import { Anchor, type AnchorProps, Text, type TextProps } from "@mantine/core";
import { IconExternalLink } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { generatePath, Link } from "react-router";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";

/** The page of a webhook. */
export const webhookPage = (id: bigint) => generatePath(PAGE_PATHS.webhook, { id: String(id) });
/** The page of a delivery. */
export const deliveryPage = (id: string) => generatePath(PAGE_PATHS.delivery, { id });
/** The page of an event. */
export const eventPage = (id: string) => generatePath(PAGE_PATHS.event, { id });
/** The page of a list with filters. */
export const listPage = (path: string, filters: Record<string, string>) =>
  `${path}?${new URLSearchParams(filters)}`;
/** The page of a customer. */
export const customerPage = (id: string) => listPage(PAGE_PATHS.customer, { id });
/** The list of a webhook's deliveries. */
export const deliveriesOf = (id: bigint) => listPage(PAGE_PATHS.deliveries, { webhook: String(id) });

/** A link to another page. */
export interface PageLinkProps extends AnchorProps {
  to: string;
  title?: string | undefined;
  "aria-label"?: string | undefined;
  "aria-current"?: boolean | undefined;
  /** Whether the page stays where it is scrolled to: what is opened is on the same page. */
  preventScrollReset?: boolean | undefined;
  children: ReactNode;
}

/** Leads to another page. */
export function PageLink({ inherit = false, size = inherit ? undefined : "sm", ...link }: PageLinkProps) {
  return <Anchor component={Link} inherit={inherit} size={size} {...link} />;
}

/** A link to the Temporal UI. */
export interface TemporalLinkProps extends AnchorProps {
  href: string;
  /** In pixels. */
  iconSize?: number;
  children: string;
}

/** Leads to the Temporal UI, in a new tab. */
export function TemporalLink({ iconSize = 14, children, ...link }: TemporalLinkProps) {
  return (
    <Anchor target="_blank" rel="noreferrer" size={link.inherit ? undefined : "sm"} {...link}>
      {children} <IconExternalLink size={iconSize} aria-label="in a new tab" />
    </Anchor>
  );
}

/** Quiet text. */
export function Dimmed(
  props: TextProps & { component?: "div"; id?: string; role?: string; title?: string; children?: ReactNode },
) {
  return <Text size="sm" c="dimmed" {...props} />;
}
