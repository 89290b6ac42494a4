import { inject } from "vitest";
import type { Parts } from "./run/parts.ts";

/** The parts that this process has asked for. */
const asked = new Map<keyof Parts, Promise<unknown>>();

/**
 * A part that all files of the run share, started by the first file that asks for it.
 *
 * @throws Error saying why it cannot be started
 */
export function part<Name extends keyof Parts>(name: Name): Promise<Parts[Name]> {
  const answer = asked.get(name) ?? ask(name);
  asked.set(name, answer);
  return answer as Promise<Parts[Name]>;
}

async function ask(name: keyof Parts): Promise<unknown> {
  const response = await fetch(`${inject("partsUrl")}/${name}`);
  if (!response.ok) throw new Error(`the run has no ${name}: ${await response.text()}`);
  return response.json();
}
