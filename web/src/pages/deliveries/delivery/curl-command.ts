/** A command for a POSIX shell that makes the same POST. */
export function curlCommand(
  url: string,
  headers: readonly { name: string; value: string }[],
  body: string,
): string {
  return [
    `curl -X POST ${quoted(url)}`,
    ...headers.map(({ name, value }) => `-H ${quoted(`${name}: ${value}`)}`),
    `--data-raw ${quoted(body)}`,
  ].join(" \\\n  ");
}

/** A text as one word of a shell, whatever it contains. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
