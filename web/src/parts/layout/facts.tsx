import { DataList } from "@mantine/core";
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
}

/** Names and values, one per line; on a phone, names are above their values. */
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
