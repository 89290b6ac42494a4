/** The path prefix at which a proxy serves the page, such as `/webhooks`; empty for none. The service writes it into the page. */
export const BASE_PATH = document.documentElement.dataset.basePath ?? "";
