import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { untilRead } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const HOUR = 3_600_000;

let web: Web;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api", DISPATCH_INTERVAL: "24h", DELIVERY_TIMEOUT: "7s" });
});
afterAll(() => web?.stop());

test("the command among the first steps publishes an event to this instance, once a key is put in", () =>
  web.visit({}, async (page) => {
    const steps = page.getByRole("region", { name: "First steps", exact: true });
    const block = steps.getByRole("region", { name: "Command that publishes an event" });
    const command = (await block.textContent()) ?? "";
    expect(command).toContain(`${web.service.url}/`);
    expect(command).not.toContain(web.service.adminKey);
    expect(command.split("YOUR_API_KEY")).toHaveLength(2);
    const { stdout } = await promisify(execFile)("sh", [
      "-eu",
      "-c",
      command.replace("YOUR_API_KEY", web.service.adminKey),
    ]);
    const { eventId } = JSON.parse(stdout) as { eventId: string };
    expect(eventId).toMatch(/^[0-9a-f]{8}-/);
    const [event] = await web.service.db("events").where("id", eventId);
    expect(event).toMatchObject({ process: 1, user_id: "tenant-42" });
  }));

test("the page of a webhook tells the configured DELIVERY_TIMEOUT", async () => {
  const id = await web.service.register("https://receiver.example/timeout");
  await web.visit({ path: `/webhooks/${id}` }, async (page) => {
    await page.getByText("Answer with any 2xx status within 7 seconds.").waitFor();
  });
});

test("an instance that delivered something more than 24 hours ago is told no first steps", async () => {
  const webhookId = await web.service.register("https://receiver.example/quiet");
  await web.visit({}, async (page) => {
    const steps = page.getByRole("region", { name: "First steps", exact: true });
    await steps.getByText("Nothing has been sent yet.").waitFor();
    await page.getByRole("link", { name: "Delivered 0 last 24 hours none the day before" }).waitFor();
    const started = new Date(Date.now() - 30 * HOUR);
    await storeDeliveries(web.service.db, [
      {
        webhookId,
        state: "delivered",
        created: started,
        finished: started,
        tried: [{ started, status: 200 }],
      },
    ]);
    const listed = page.waitForResponse("**/ListWebhooks");
    await page.reload();
    await page.getByRole("link", { name: /^Delivered 0 .* than the day before \(1\)$/ }).waitFor();
    await listed;
    await untilRead(page);
    expect(await steps.count()).toBe(0);
  });
});
