import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { tabTo } from "../keyboard.ts";
import { expectCalls, startWeb } from "../web.ts";

const web = await startWeb({ RETRY_INITIAL_DELAY: "50ms" });
const { service } = web;
let status = 503;
const receiver = await service.endpoint(() => status);
const { host } = new URL(receiver.url);
const title = `The receiver answers 503 Service Unavailable: ${host}`;
const section = (page: Page, name: string) => page.getByRole("region", { name, exact: true });

test("a receiver that fails is an incident on the overview, which leads to what to do and, once it answers, to its end", async () => {
  const { eventId } = await service.publish();
  await service.untilFinal(eventId);
  await web.visit({}, async (page) => {
    const incident = section(page, "Incidents").getByRole("link", { name: title });
    await incident.waitFor();
    await section(page, "Incidents").getByText("See the receiver’s log for the reason.").waitFor();
    await tabTo(page, incident);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: title, level: 1 }).waitFor();
    await section(page, "Webhooks").getByText("Not yet").waitFor();

    await page.getByRole("button", { name: "Replay 1 failed…" }).click();
    status = 200;
    await page.getByRole("dialog").getByRole("button", { name: "Send again" }).click();
    await page.getByText("The replay has started").waitFor();
    await page.getByText(/^Ended /).waitFor();
    await section(page, "Webhooks").getByRole("cell", { name: "Not yet" }).waitFor({ state: "detached" });
    await section(page, "What it was").getByText("Recovered").waitFor();
    await page.getByRole("link", { name: "All incidents" }).click();
    await section(page, "Open").getByText("No webhook fails").waitFor();
    await section(page, "Past").getByRole("link", { name: title }).waitFor();
  });
  await service.untilDelivered(eventId, 5);
});

test("a part of the chart is selected with the mouse, and its failed deliveries are replayed", () =>
  web.visit({}, async (page) => {
    const chart = section(page, "Attempts");
    await chart.getByText("1 hour").click();
    const bars = chart.locator(".recharts-surface").first();
    const { x, y, width } = (await bars.boundingBox()) ?? { x: 0, y: 0, width: 0 };
    await page.mouse.move(x + width - 100, y + 90);
    await page.mouse.down();
    await page.mouse.move(x + width - 40, y + 90, { steps: 5 });
    await page.mouse.move(x + width - 10, y + 90, { steps: 5 });
    await page.mouse.up();
    await chart.getByText(/delivered$/).waitFor();
    await chart.getByRole("button", { name: "Replay failed…" }).click();
    await page.getByRole("dialog").getByText("No delivery matches this filter.").waitFor();
    await page.keyboard.press("Escape");
    await chart.getByRole("link", { name: "List deliveries" }).click();
    await page.getByRole("row").nth(1).waitFor();
    const asked = new URL(page.url()).searchParams;
    expect(Date.parse(asked.get("to") ?? "") - Date.parse(asked.get("from") ?? "")).toBeGreaterThan(0);
  }));

expectCalls("incidents", web);
