/**
 * Loaded before a program (`node --import`): its wall clock jumps by hours, forwards and backwards, again and again. Timers and
 * the monotonic clock go on as they do when an administrator or NTP sets the clock.
 */
const HOUR_MS = 3_600_000;
const JUMPS_MS = [2 * HOUR_MS, -3 * HOUR_MS, 30 * 24 * HOUR_MS, 0];
const EVERY_MS = 700;

const RealDate = Date;
let jumps = 0;
const now = () => RealDate.now() + (JUMPS_MS[jumps % JUMPS_MS.length] as number);
setInterval(() => {
  jumps += 1;
}, EVERY_MS).unref();

globalThis.Date = new Proxy(RealDate, {
  construct: (target, given, newTarget) =>
    Reflect.construct(target, given.length > 0 ? given : [now()], newTarget),
  apply: () => new RealDate(now()).toString(),
  get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
});
