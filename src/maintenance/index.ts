/** What a delivering process does every second. */
export { startMaintenance } from "./maintenance.ts";
