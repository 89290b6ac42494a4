import type { Timestamp } from "@bufbuild/protobuf/wkt";

/** 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z in seconds since 1970: the range of protobuf and ISO 8601. */
const FIRST_SECOND = -62_135_596_800n;
const LAST_SECOND = 253_402_300_799n;

/** Whether a Timestamp is in the years 0001 to 9999, as protobuf requires. */
export function isTimestampInRange(timestamp: Timestamp): boolean {
  const { seconds, nanos } = timestamp;
  return seconds >= FIRST_SECOND && seconds <= LAST_SECOND && nanos >= 0 && nanos <= 999_999_999;
}

/**
 * Formats a Timestamp in UTC with whole seconds and without a zone: `YYYY-MM-DDThh:mm:ss` (contract, section 2.3).
 *
 * @throws RangeError outside the years 0001 to 9999
 */
export function sortableTime(timestamp: Timestamp): string {
  if (!isTimestampInRange(timestamp)) throw new RangeError("a time is outside the years 0001 to 9999");
  return new Date(Number(timestamp.seconds) * 1_000).toISOString().slice(0, 19);
}
