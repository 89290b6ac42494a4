import {
  Alert,
  Code,
  type CSSVariablesResolver,
  createTheme,
  localStorageColorSchemeManager,
  Modal,
  NavLink,
  Notification,
  TableScrollContainer,
} from "@mantine/core";

/** The look of the page. Fonts are the system's, so none is fetched. */
export const theme = createTheme({
  primaryColor: "blue",
  // Shades whose text and whose white-on-colour both reach a contrast of 4.5.
  primaryShade: { light: 8, dark: 8 },
  defaultRadius: "md",
  cursorType: "pointer",
  respectReducedMotion: true,
  autoContrast: true,
  headings: { fontWeight: "650" },
  components: {
    NavLink: NavLink.extend({ styles: { root: { borderRadius: "var(--mantine-radius-md)" } } }),
    Alert: Alert.extend({ styles: { message: { color: "var(--mantine-color-text)" } } }),
    // At the top, so that a dialog stays where it is when there comes to be more in it.
    Modal: Modal.extend({
      defaultProps: { closeButtonProps: { "aria-label": "Close" } },
      styles: { title: { fontWeight: 650, lineHeight: 1.4 } },
    }),
    // The library's own scrollbars leave room for themselves below tables that do not scroll.
    TableScrollContainer: TableScrollContainer.extend({ defaultProps: { type: "native" } }),
    Code: Code.extend({ defaultProps: { fz: "0.9em" } }),
    Notification: Notification.extend({
      defaultProps: { closeButtonProps: { "aria-label": "Close this message" } },
      styles: { description: { color: "var(--mantine-color-dimmed)", overflowWrap: "anywhere" } },
    }),
  },
});

/** Colours of badges and notices, whose text is of the colour too. */
const TINTS = ["gray", "red", "orange", "yellow", "green", "teal", "blue"];
const IN_LIGHT = Object.fromEntries(
  TINTS.map((tint) => [
    `--mantine-color-${tint}-light-color`,
    `color-mix(in srgb, var(--mantine-color-${tint}-9) 70%, black)`,
  ]),
);
const IN_DARK = Object.fromEntries(
  TINTS.flatMap((tint) => [
    [`--mantine-color-${tint}-light-color`, `var(--mantine-color-${tint}-3)`],
    [
      `--mantine-color-${tint}-light`,
      `color-mix(in srgb, var(--mantine-color-${tint}-7) 18%, var(--mantine-color-dark-7))`,
    ],
  ]),
);

/** Quiet and tinted text that can still be read, where the library's own is too faint (WCAG 2.1, 1.4.3), and tints that
 * do not shout in the dark. */
export const cssVariables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "var(--mantine-color-gray-7)",
    "--mantine-color-placeholder": "var(--mantine-color-gray-6)",
    "--mantine-color-error": "var(--mantine-color-red-8)",
    ...IN_LIGHT,
  },
  dark: {
    "--mantine-color-dimmed": "var(--mantine-color-dark-1)",
    "--mantine-color-placeholder": "var(--mantine-color-dark-2)",
    "--mantine-color-error": "var(--mantine-color-red-4)",
    ...IN_DARK,
  },
});

/** Remembers light or dark; index.html reads the same before anything is shown. */
export const colorSchemeManager = localStorageColorSchemeManager({ key: "color-scheme" });

/** What this answer's Content-Security-Policy lets through; empty in development, which has none. */
export function styleNonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce ?? "";
}
