import { type CelFunc, CelScalar, celFunc, celMethod, objectType } from "@bufbuild/cel";
import { type Timestamp, TimestampSchema, timestampFromMs } from "@bufbuild/protobuf/wkt";

const { INT, STRING } = CelScalar;
const TIMESTAMP = objectType(TimestampSchema);
/** The earliest and the latest second of a timestamp. */
const [FIRST, LAST] = [-62_135_596_800n, 253_402_300_799n];

/** The parts of a time, in its time zone. */
const PARTS: Record<string, (time: Temporal.ZonedDateTime) => number> = {
  getFullYear: ({ year }) => year,
  getMonth: ({ month }) => month - 1,
  getDate: ({ day }) => day,
  getDayOfMonth: ({ day }) => day - 1,
  getDayOfWeek: ({ dayOfWeek }) => dayOfWeek % 7,
  getDayOfYear: ({ dayOfYear }) => dayOfYear - 1,
  getHours: ({ hour }) => hour,
  getMinutes: ({ minute }) => minute,
  getSeconds: ({ second }) => second,
  getMilliseconds: ({ millisecond }) => millisecond,
};

/**
 * Times in UTC, or in a time zone. Those of the library compute with the time zone of the process, whose clock skips hours.
 * Its `timestamp(1)` is a millisecond instead of a second.
 */
export const timeFunctions: CelFunc[] = [
  celFunc("timestamp", [INT], TIMESTAMP, (seconds) => {
    if (seconds < FIRST || seconds > LAST) throw new Error("timestamp out of range");
    return timestampFromMs(Number(seconds) * 1_000);
  }),
  ...Object.entries(PARTS).flatMap(([name, part]) => {
    const read = ({ seconds, nanos }: Timestamp, zone: string) =>
      BigInt(
        part(Temporal.Instant.fromEpochMilliseconds(msOf(seconds, nanos)).toZonedDateTimeISO(zoneOf(zone))),
      );
    return [
      celMethod(name, TIMESTAMP, [], INT, function () {
        return read(this.message, "UTC");
      }),
      celMethod(name, TIMESTAMP, [STRING], INT, function (zone) {
        return read(this.message, zone);
      }),
    ];
  }),
];

const msOf = (seconds: bigint, nanos: number) => Number(seconds) * 1_000 + Math.floor(nanos / 1e6);

/** CEL has offsets without a sign. */
const zoneOf = (zone: string) => (/^\d/.test(zone) ? `+${zone}` : zone);
