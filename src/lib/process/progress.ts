/**
 * Receives progress messages for the terminal, one line of plain text per call, without a line end. Messages never
 * contain a secret.
 */
export type Progress = (line: string) => void;
