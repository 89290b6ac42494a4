import {
  Box,
  type BoxProps,
  Card,
  type CardProps,
  Stack,
  type StackProps,
  VisuallyHidden,
} from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { type ComponentProps, Fragment, type ReactNode } from "react";

/** Just below the theme's breakpoints of these names. */
const WIDTHS = { sm: "47.99em", md: "61.99em", lg: "74.99em", desk: "79.99em" } as const;

/**
 * Whether the screen is narrower than a breakpoint: than `sm` is a phone's, than `md` most tables have no room beside
 * the navigation, than `lg` wide ones have none, than
 * `desk` a list has none for what it opens beside it.
 */
export function useBelow(breakpoint: keyof typeof WIDTHS): boolean {
  return useMediaQuery(`(max-width: ${WIDTHS[breakpoint]})`, false, { getInitialValueInEffect: false });
}

/** A column of a table. `ta` and `visibleFrom` apply to all its cells, other attributes to the head only. */
export interface Column<T> extends Pick<BoxProps, "w" | "miw" | "ta" | "visibleFrom"> {
  /** The name, different from those of the other columns. */
  name: string;
  /** The head. Defaults to the name; null has the name read out only. */
  head?: ReactNode;
  /** Shown while the pointer rests on the head. */
  title?: string;
  cell: (item: T) => ReactNode;
}

/** The columns, in order. False ones are omitted. */
export type Columns<T> = readonly (Column<T> | false | undefined)[];

/** The rows of a table. */
export interface TableProps {
  "aria-label"?: string;
  className?: string;
  /** Whether the columns are as wide as their heads say, whatever is in them. */
  isFixed?: boolean;
  /** The space above and below what is in a cell, in pixels. Defaults to 4. */
  space?: number;
  children: ReactNode;
}

/** A table, dense, with lines between its rows. */
export function Table({ className = "", isFixed = false, space = 4, ...table }: TableProps) {
  const style = { tableLayout: isFixed ? "fixed" : "auto", "--cell-space": `${space / 16}rem` } as const;
  return <table className={`table ${className}`} style={style} {...table} />;
}

/** A table of items. */
export interface DataTableProps<T> extends Omit<TableProps, "children"> {
  items: readonly T[];
  /** Defaults to the item's `id`. */
  keyOf?: (item: T) => string;
  columns: Columns<T>;
  /** The width in pixels below which the table scrolls. */
  minWidth?: number;
  headProps?: { style: React.CSSProperties };
  rowProps?: (item: T) => ComponentProps<"tr">;
  /** What is shown in a row below an item, if anything. */
  below?: (item: T) => ReactNode;
}

const idOf = (item: unknown) => String((item as { id: unknown }).id);

/** A table with a row for each item. */
export function DataTable<T>(props: DataTableProps<T>) {
  const { items, keyOf = idOf, columns, minWidth, headProps, rowProps, below, ...rest } = props;
  const shown = columns.filter((column) => column !== false && column !== undefined);
  const table = (
    <Table {...rest}>
      <thead {...headProps}>
        <tr>
          {shown.map(({ name, head = name, cell: _, ...th }) => (
            <Box component="th" key={name} {...th}>
              {head ?? <VisuallyHidden>{name}</VisuallyHidden>}
            </Box>
          ))}
        </tr>
      </thead>
      <tbody>
        {items.map((item) => (
          <Fragment key={keyOf(item)}>
            <tr {...rowProps?.(item)}>
              {shown.map(({ name, ta, visibleFrom, cell }) => (
                <Box component="td" key={name} ta={ta} visibleFrom={visibleFrom}>
                  {cell(item)}
                </Box>
              ))}
            </tr>
            {below?.(item) && (
              <tr>
                <Box component="td" colSpan={shown.length} pl="xl" pb="xs">
                  {below(item)}
                </Box>
              </tr>
            )}
          </Fragment>
        ))}
      </tbody>
    </Table>
  );
  return minWidth === undefined ? (
    table
  ) : (
    <div className="table-scroll">
      <div style={{ minWidth }}>{table}</div>
    </div>
  );
}

/** A table, and cards in its place on narrower screens. */
export interface ListingProps<T> extends DataTableProps<T> {
  /** The breakpoint below which each item is a card. */
  cardsBelow: keyof typeof WIDTHS;
  card: (item: T) => ReactNode;
  /** The list of the cards, if it is not a stack of them. */
  cards?: StackProps;
  /** The space in a card: around its contents, and between them. */
  cardPadding?: CardProps["padding"];
  cardGap?: StackProps["gap"];
}

/** Items as a table; as cards where there is no room for one. */
export function Listing<T>(props: ListingProps<T>) {
  const { cardsBelow, card, cards, cardPadding = "md", cardGap = "xs", ...table } = props;
  const { items, keyOf = idOf } = table;
  if (!useBelow(cardsBelow)) return <DataTable {...table} />;
  return (
    <Stack component="ul" aria-label={table["aria-label"]} p={0} m={0} gap="sm" {...cards}>
      {items.map((item) => (
        <Card key={keyOf(item)} component="li" withBorder padding={cardPadding}>
          <Stack gap={cardGap}>{card(item)}</Stack>
        </Card>
      ))}
    </Stack>
  );
}
