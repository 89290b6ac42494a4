import { useMediaQuery } from "@mantine/hooks";

/** Just below the theme's breakpoints of these names. */
const WIDTHS = { sm: "47.99em", md: "61.99em", lg: "74.99em" } as const;

/**
 * Whether the screen is narrower than a breakpoint: than `sm` is a phone's, than `md` most tables have no room beside
 * the navigation, than `lg` wide ones have none.
 */
export function useBelow(breakpoint: keyof typeof WIDTHS): boolean {
  return useMediaQuery(`(max-width: ${WIDTHS[breakpoint]})`, false, { getInitialValueInEffect: false });
}
