/** The first sentence of a comment, without its full stop. */
export function firstSentence(comment: string): string {
  return (/^.*?(?=\.(?:\s|$))/s.exec(comment)?.[0] ?? comment).replaceAll(/\s+/g, " ");
}
