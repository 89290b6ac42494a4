import { hostname } from "node:os";

/** The name of this process among those of all machines: the host and the process id, `api-7/1`. */
export const instanceName = (): string => `${hostname()}/${process.pid}`;
