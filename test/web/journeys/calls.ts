export const isCalledByJourney = (_name: string) => true;
