import { parentPort, workerData } from "node:worker_threads";
import { prepare } from "./prepare.ts";

// Reads and checks the set that the thread was started with.
parentPort?.postMessage(prepare(workerData.stored, workerData.given));
