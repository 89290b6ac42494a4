/**
 * Characters of Cf that texts need: joiners, without which Persian and Indic words are misspelt and `👩‍💻` is two emoji, tags, which are
 * part of flags, and signs of Arabic and Syriac, which are shown (Unicode Standard Annex 31, 2.3).
 */
const NEEDED = "\u200c\u200d\u{e0020}-\u{e007f}\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2";
/** Controls (Cc), other formatting characters such as bidi controls and zero-width spaces (Cf), line and paragraph separators. */
const INVISIBLE = new RegExp(`(?![${NEEDED}])[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]`, "u");

/**
 * The first character that is not shown and may change how the text around it is shown, as `U+202E`; undefined when
 * there is none. Such text can look like another one: a URL that reads as if it led to another host.
 */
export function invisibleCharacter(text: string): string | undefined {
  const point = INVISIBLE.exec(text)?.[0].codePointAt(0);
  return point === undefined ? undefined : `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Whether nothing of a text is shown. */
export function isBlank(text: string): boolean {
  return /^[\p{Cf}\p{Z}\s]*$/u.test(text);
}
