/**
 * Reads a list to its end; answers its pages.
 *
 * @param read reads the page with this token
 * @param first the token of the first page
 * @param next the field of a page with the token of the one after it
 */
export async function pagesOf<Page extends object>(
  read: (pageToken: string) => Promise<Page>,
  first = "",
  next: "nextPageToken" | "previousPageToken" = "nextPageToken",
): Promise<Page[]> {
  const pages: Page[] = [];
  let token = first;
  do {
    const page = await read(token);
    pages.push(page);
    token = (page as Record<typeof next, string>)[next];
  } while (token !== "");
  return pages;
}
