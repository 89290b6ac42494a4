/**
 * Where a launcher tells a person what it is doing, one line of plain text at a time, without a line end.
 * The caller passes it in (a logger, the terminal, a list in a test). It never receives a secret.
 */
export type Progress = (line: string) => void;
