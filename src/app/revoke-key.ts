import { cancelReplaysOfKey } from "../replays/index.ts";
import { keyRevocation } from "../revocation/index.ts";

/** Revokes a key, with all that ends with it. */
export const revokeKey = keyRevocation({ replays_cancelled: cancelReplaysOfKey });
