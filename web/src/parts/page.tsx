import { DataList, Group, SimpleGrid, Stack, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { IconArrowLeft } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Dimmed, PageLink } from "./inline.tsx";
import { useBelow } from "./listing.tsx";
import { Breakable } from "./text/breakable.tsx";

/** The head of a page. */
export interface PageTitleProps {
  title: string;
  /** The title of the browser's tab. Defaults to the page's. */
  tab?: string;
  /** The purpose of the page, in a sentence. */
  description?: ReactNode;
  /** Buttons, at the end of the line. */
  actions?: ReactNode;
  /** Whether a list follows that needs the height. */
  compact?: boolean;
}

/** A page's one heading of the first order, with what can be done on the page. */
export function PageTitle({ title, tab = title, description, actions, compact = false }: PageTitleProps) {
  useDocumentTitle(`${tab} · Webhook service`);
  return (
    <Group justify="space-between" align="flex-start" gap="md" mb={compact ? "xs" : "lg"}>
      <Stack gap={4} miw={0}>
        <Title order={1} size="h2" style={{ overflowWrap: "anywhere" }}>
          <Breakable text={title} />
        </Title>
        {description && <Dimmed component="div">{description}</Dimmed>}
      </Stack>
      {actions && (
        <Group gap="sm" className="page-actions">
          {actions}
        </Group>
      )}
    </Group>
  );
}

/** Leads from one thing's page to the list of all, above the page's title. */
export function BackLink({ to, children }: { to: string; children: string }) {
  return (
    <PageLink to={to} display="inline-flex" mb="xs" style={{ alignItems: "center", gap: 4 }}>
      <IconArrowLeft size={14} aria-hidden />
      {children}
    </PageLink>
  );
}

/** A part of a page. */
export interface SectionProps {
  title: string;
  /** The purpose of the section, in one or two sentences. */
  description?: ReactNode;
  /** Buttons and links, at the end of the title's line. */
  actions?: ReactNode;
  children?: ReactNode;
}

/** A part of a page with a heading. */
export function Section({ title, description, actions, children }: SectionProps) {
  return (
    <Stack component="section" aria-label={title} className="section" gap="sm">
      <Group justify="space-between" align="flex-end" gap="sm" className="section-head">
        <Stack gap={2} miw={0} flex="1 1 16rem">
          <Title order={2} size="h3">
            {title}
          </Title>
          {description && (
            <Dimmed maw={720} component="div">
              {description}
            </Dimmed>
          )}
        </Stack>
        {actions && <Group gap="sm">{actions}</Group>}
      </Group>
      {children}
    </Stack>
  );
}

/** A fact: its name and its value. */
export type Fact = readonly [name: string, value: ReactNode];

/** A list of facts. */
export interface FactsProps {
  /** The facts, in order. False and undefined ones are omitted: `finished && ["Finished", …]`. */
  facts: readonly (Fact | false | undefined)[];
  /** Whether a wide screen has them in two columns, the first half on the left. */
  inColumns?: boolean;
}

/** Names and values, one per line; on a phone, names are above their values. */
export function Facts({ facts, inColumns = false }: FactsProps) {
  const isWide = !useBelow("lg");
  const shown = facts.filter((fact) => fact !== false && fact !== undefined);
  if (!inColumns || !isWide) return <Column facts={shown} />;
  const half = Math.ceil(shown.length / 2);
  return (
    <SimpleGrid cols={2} spacing="lg">
      <Column facts={shown.slice(0, half)} />
      <Column facts={shown.slice(half)} />
    </SimpleGrid>
  );
}

function Column({ facts }: { facts: readonly Fact[] }) {
  const narrow = useBelow("sm");
  return (
    <DataList labelWidth="130px" orientation={narrow ? "vertical" : "horizontal"}>
      {facts.map(([name, value]) => (
        <DataList.Item key={name}>
          <DataList.ItemLabel>{name}</DataList.ItemLabel>
          <DataList.ItemValue miw={0} style={{ overflowWrap: "anywhere" }}>
            {value}
          </DataList.ItemValue>
        </DataList.Item>
      ))}
    </DataList>
  );
}
