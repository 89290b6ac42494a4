import type { Page } from "playwright-core";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import type { TestService } from "../support/test-service.ts";

/** What a key of an integrator has. */
export const READ_AND_WRITE = [Permission.READ_ADMINISTRATIVE_DATA, Permission.WRITE_ADMINISTRATIVE_DATA];

/** The row of the list with this name. */
export const row = (page: Page, name: string) =>
  page.getByRole("row").filter({ has: page.getByText(name, { exact: true }) });

/** The dialog that is open. */
export const dialog = (page: Page) => page.getByRole("dialog");

/** The secret that the page shows once. */
export const secretShown = (page: Page) => page.getByLabel("Secret", { exact: true }).inputValue();

let made = 0;

/** Makes a key under a name of its own; one of an integrator unless told. */
export async function newKey(
  { keys }: TestService,
  permissions: Permission[] = READ_AND_WRITE,
  allowedProcesses: WebhookProcess[] = [],
) {
  const name = `Key ${++made}`;
  const { apiKey, secret } = await keys.createApiKey({ name, permissions, allowedProcesses });
  return { id: apiKey?.id as string, name, secret };
}
