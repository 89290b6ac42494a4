import { DataList } from "@mantine/core";
import type { ReactNode } from "react";
import { useBelow } from "../lists/use-below.ts";

/** Something that is told: what it is, and what it is here. */
export type Fact = readonly [name: string, value: ReactNode];

/** What is told, in order. */
export interface FactsProps {
  /** What there is not may be left out by its condition: `finished && ["Finished", …]`. */
  facts: readonly (Fact | false | undefined)[];
  /** For short values: beside their names on a phone too. */
  inline?: boolean;
}

/** Names and values, one under the other; on a phone a name stands above its value. */
export function Facts({ facts, inline = false }: FactsProps) {
  const narrow = useBelow("sm");
  return (
    <DataList labelWidth="130px" orientation={narrow && !inline ? "vertical" : "horizontal"}>
      {facts
        .filter((fact) => fact !== false && fact !== undefined)
        .map(([name, value]) => (
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
