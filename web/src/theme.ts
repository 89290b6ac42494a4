import {
  type AlertFactory,
  type BadgeFactory,
  type ButtonFactory,
  type CodeFactory,
  type CSSVariablesResolver,
  createTheme,
  type ExtendComponent,
  type FactoryPayload,
  type InputFactory,
  localStorageColorSchemeManager,
  type MantineColorsTuple,
  type ModalFactory,
  type NotificationFactory,
} from "@mantine/core";

/** Ten shades, light ones first. */
const shades = (text: string) => text.split(" ") as unknown as MantineColorsTuple;

/** The colour of links, buttons and what is chosen; shade 7 has a contrast of 8 to white. */
const INK = shades("#f0f3fe #e0e6fc #bfcaf7 #95a6ef #6b82e5 #4c65d9 #3a51c4 #2f43a6 #253587 #1a2560");

/** The colour of failures and irreversible actions. White text on shades 6 and 7 has a contrast of at least 4.5. */
const RED = shades("#fff5f5 #ffe3e3 #ffc9c9 #ffa8a8 #ff8787 #f25c5c #e03131 #c92a2a #b02525 #8f1d1d");

/** Grounds, lines and quiet text, slightly blue. */
const SLATE = shades("#f7f8fa #eff1f5 #e3e6ec #d0d5de #b3bac7 #8d96a6 #6a7485 #4f5968 #353d4a #1d232e");

/** The same in the dark, light text first. */
const NIGHT = shades("#d3d8e0 #a7afbd #8790a0 #5a6372 #3b4351 #2b323e #222934 #161b23 #11151c #0c0f14");

/** The settings of a component, without the component itself: the first page does not need all of them. */
const of = <Factory extends FactoryPayload>(settings: ExtendComponent<Factory>) => settings;

/** The look of the page: a scale of 12, 13, 14, 16, 20 and 26 pixels, dense rows, lines in place of frames. Colour has
 * meaning: red failed, orange degraded or late, green arrived; all else is ink or slate. */
export const theme = createTheme({
  primaryColor: "ink",
  colors: { ink: INK, red: RED, gray: SLATE, dark: NIGHT },
  // Shades whose text and whose white-on-colour both reach a contrast of 4.5.
  primaryShade: { light: 7, dark: 6 },
  defaultRadius: "sm",
  radius: { xs: "2px", sm: "4px", md: "6px", lg: "8px", xl: "12px" },
  cursorType: "pointer",
  respectReducedMotion: true,
  autoContrast: true,
  fontFamily: '"Geist Variable", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif',
  fontFamilyMonospace:
    'ui-monospace, "SF Mono", "JetBrains Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.25rem" },
  lineHeights: { xs: "1.4", sm: "1.45", md: "1.5", lg: "1.5", xl: "1.5" },
  spacing: { xs: "0.5rem", sm: "0.625rem", md: "0.875rem", lg: "1.125rem", xl: "1.5rem" },
  headings: {
    fontWeight: "620",
    sizes: {
      h1: { fontSize: "1.625rem", lineHeight: "1.25" },
      h2: { fontSize: "1.25rem", lineHeight: "1.3" },
      h3: { fontSize: "1rem", lineHeight: "1.4" },
      h4: { fontSize: "0.875rem", lineHeight: "1.4" },
    },
  },
  components: {
    Button: of<ButtonFactory>({ defaultProps: { size: "xs" } }),
    Input: of<InputFactory>({ defaultProps: { size: "sm" } }),
    Badge: of<BadgeFactory>({
      defaultProps: { radius: "sm", size: "sm" },
      styles: { root: { fontWeight: 500, letterSpacing: 0 } },
    }),
    Alert: of<AlertFactory>({
      defaultProps: { p: "sm" },
      styles: { message: { color: "var(--mantine-color-text)", fontSize: "var(--mantine-font-size-sm)" } },
    }),
    // At the top, so that a dialog stays where it is when there comes to be more in it.
    Modal: of<ModalFactory>({
      // Open at once: what is typed meanwhile is not lost.
      defaultProps: {
        closeButtonProps: { "aria-label": "Close" },
        transitionProps: { duration: 0 },
        overlayProps: { backgroundOpacity: 0.4 },
        // The title of a dialog is not the banner of the page.
        attributes: { header: { role: "none" } },
      },
      styles: { title: { fontWeight: 620, fontSize: "1rem", lineHeight: 1.4 } },
    }),
    Code: of<CodeFactory>({ defaultProps: { fz: "0.92em" } }),
    Notification: of<NotificationFactory>({
      defaultProps: { closeButtonProps: { "aria-label": "Close this message" } },
      styles: { description: { color: "var(--mantine-color-dimmed)", overflowWrap: "anywhere" } },
    }),
  },
});

/** Colours of badges and notices, whose text is of the colour too. */
const TINTS = ["gray", "red", "orange", "yellow", "green", "teal", "blue", "ink"];
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
    "--frame": "var(--mantine-color-gray-0)",
    "--hover": "var(--mantine-color-gray-0)",
    "--line": "var(--mantine-color-gray-2)",
    "--late": "color-mix(in srgb, var(--mantine-color-orange-9) 85%, black)",
    "--chart-succeeded": "#95a6ef",
    "--chart-failed": "#c92a2a",
    "--rate-delivered": "#2b8a3e",
    "--chart-p50": "#4c65d9",
    "--chart-p95": "#b06a00",
    "--mantine-color-default-border": "var(--mantine-color-gray-3)",
    "--mantine-color-dimmed": "var(--mantine-color-gray-7)",
    "--mantine-color-placeholder": "var(--mantine-color-gray-6)",
    "--mantine-color-error": "var(--mantine-color-red-8)",
    ...IN_LIGHT,
  },
  dark: {
    "--frame": "var(--mantine-color-dark-8)",
    "--hover": "var(--mantine-color-dark-6)",
    "--line": "var(--mantine-color-dark-5)",
    "--late": "var(--mantine-color-orange-4)",
    "--chart-succeeded": "#4c65d9",
    "--chart-failed": "#fa5252",
    "--rate-delivered": "#37b24d",
    "--chart-p50": "#95a6ef",
    "--chart-p95": "#e8a33d",
    "--mantine-color-anchor": "var(--mantine-color-ink-2)",
    "--mantine-color-dimmed": "var(--mantine-color-dark-1)",
    "--mantine-color-placeholder": "var(--mantine-color-dark-1)",
    "--mantine-color-error": "var(--mantine-color-red-4)",
    ...IN_DARK,
  },
});

/** Remembers light or dark; index.html reads the same before anything is shown. */
export const colorSchemeManager = localStorageColorSchemeManager({ key: "color-scheme" });

/** The nonce of this response's Content-Security-Policy; empty in development, which has none. */
export function styleNonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce ?? "";
}
