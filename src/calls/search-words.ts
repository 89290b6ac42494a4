/** Words that join others, as in `SO-10056 of tenant-42`. */
const JOINING = new Set("a an and at by for from in of on the to with".split(" "));

/** The words of a search text, each once. Words that join others are left out, unless there are no others. */
export function searchWords(text: string): string[] {
  const words = [...new Set(text.split(/\s+/).filter(Boolean))];
  const meant = words.filter((word) => !JOINING.has(word.toLowerCase()));
  return meant.length > 0 ? meant : words;
}
