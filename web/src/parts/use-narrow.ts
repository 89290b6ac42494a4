import { useMediaQuery } from "@mantine/hooks";

/** Whether the screen is as narrow as a phone's, where lists are of cards rather than a table; the theme's `sm`. */
export function useNarrow(): boolean {
  return useMediaQuery("(max-width: 47.99em)", false, { getInitialValueInEffect: false });
}
