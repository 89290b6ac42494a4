import { DataList, SimpleGrid } from "@mantine/core";
import type { ReactNode } from "react";
import { useBelow } from "../lists/use-below.ts";

/** A fact: its name and its value. */
export type Fact = readonly [name: string, value: ReactNode];

/** A list of facts. */
export interface FactsProps {
  /** The facts, in order. False and undefined ones are omitted: `finished && ["Finished", …]`. */
  facts: readonly (Fact | false | undefined)[];
  /** Whether values are beside their names on a phone too, for short ones. */
  inline?: boolean;
  /** Whether a wide screen has them in two columns, the first half on the left. */
  inColumns?: boolean;
}

/** Names and values, one per line; on a phone, names are above their values. */
export function Facts({ facts, inline = false, inColumns = false }: FactsProps) {
  const isWide = !useBelow("lg");
  const shown = facts.filter((fact) => fact !== false && fact !== undefined);
  if (!inColumns || !isWide) return <Column facts={shown} inline={inline} />;
  const half = Math.ceil(shown.length / 2);
  return (
    <SimpleGrid cols={2} spacing="lg">
      <Column facts={shown.slice(0, half)} inline={inline} />
      <Column facts={shown.slice(half)} inline={inline} />
    </SimpleGrid>
  );
}

function Column({ facts, inline }: { facts: readonly Fact[]; inline: boolean }) {
  const narrow = useBelow("sm");
  return (
    <DataList labelWidth="130px" orientation={narrow && !inline ? "vertical" : "horizontal"}>
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
