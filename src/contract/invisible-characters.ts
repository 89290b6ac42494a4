/** Controls (Cc), formatting characters such as bidi controls and zero-width ones (Cf), line and paragraph separators. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

/**
 * The first character that is not shown and may change how the text around it is shown, as `U+202E`; undefined when
 * there is none. Such text can look like another one: a URL that reads as if it led to another host.
 */
export function invisibleCharacter(text: string): string | undefined {
  const point = INVISIBLE.exec(text)?.[0].codePointAt(0);
  return point === undefined ? undefined : `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
}
