import { hostname } from "node:os";

/** The name of this process, unique across machines: the host name and the process id, such as `api-7/1`. */
export const instanceName = (): string => `${hostname()}/${process.pid}`;
