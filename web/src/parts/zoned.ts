import dayjs, { type ConfigType, type Dayjs } from "dayjs";
import utc from "dayjs/plugin/utc";
import { useZone } from "./time.tsx";

dayjs.extend(utc);

/** What makes moments in the chosen zone, of now by default. A text without a zone is a time in that zone. */
export function useZoned(): (moment?: ConfigType) => Dayjs {
  return useZone().isUtc ? dayjs.utc : dayjs;
}
